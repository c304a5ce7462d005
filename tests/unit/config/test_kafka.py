"""Kafka's settings from a mapping: defaults, contradictions, clusters; librdkafka's and Java's words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError
from tests.support.builders import an_event, load_handler

from keylane.adapters.kafka.clients import RejectionListener
from keylane.adapters.kafka.options import ClientOptions, Connection, ProducerOptions, Security
from keylane.config import kafka as kafka_config
from keylane.config.functions import ExploreSettings, ProduceSettings
from keylane.errors import ConnectionRejected, SettingsError
from keylane.model.clusters import Clusters, Named
from keylane_spark.engine import kafka_options

if TYPE_CHECKING:
    from pathlib import Path

K = "KEYLANE_KAFKA_"
BOOTSTRAP = {f"{K}BOOTSTRAP": "one:9092"}
SCRAM = {
    "SASL_MECHANISM": "SCRAM-SHA-512",
    "SASL_USERNAME": "keylane",
    "SASL_PASSWORD": " hunter2 ",
}
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIBhunter2\n-----END PRIVATE KEY-----\n"


def variables(**given: str) -> dict[str, str]:
    return BOOTSTRAP | {K + name: value for name, value in given.items()}


def written(**given: str) -> dict[str, Any]:
    """What the produce function's client is configured with."""
    kafka = ProduceSettings.from_environment(variables(**given)).clusters.default
    return kafka.configuration() | kafka.security.configuration()


def test_without_settings_connections_have_neither_encryption_nor_credentials():
    assert kafka_config.connection(BOOTSTRAP) == Connection("one:9092", Security(), ClientOptions())
    assert kafka_config.producer_options(BOOTSTRAP) == ProducerOptions("all", True, 5, "wait", "none")
    assert Security().configuration() == {}


def test_credentials_are_encrypted_unless_the_protocol_says_otherwise():
    found = written(**SCRAM)
    assert found["security.protocol"] == "SASL_SSL"
    assert (found["sasl.mechanisms"], found["sasl.username"]) == ("SCRAM-SHA-512", "keylane")
    assert found["sasl.password"] == " hunter2 "
    assert written(**SCRAM, SECURITY_PROTOCOL="sasl_plaintext")["security.protocol"] == "SASL_PLAINTEXT"


def test_certificates_are_paths_or_texts():
    found = written(SECURITY_PROTOCOL="SSL", SSL_CA="ca.pem", SSL_CERTIFICATE=PEM, SSL_KEY=KEY)
    assert found["ssl.ca.location"] == "ca.pem"
    assert (found["ssl.certificate.pem"], found["ssl.key.pem"]) == (PEM.strip(), KEY.strip())


def test_certificates_are_verified_fully_by_default():
    whole = written(SECURITY_PROTOCOL="SSL")
    assert not {"enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm"} & set(whole)
    chain = written(SECURITY_PROTOCOL="SSL", SSL_VERIFY="chain")
    assert chain["ssl.endpoint.identification.algorithm"] == "none"
    assert "enable.ssl.certificate.verification" not in chain
    assert written(SECURITY_PROTOCOL="SSL", SSL_VERIFY="none")["enable.ssl.certificate.verification"] is False


def test_every_option_reaches_the_client():
    found = written(
        CLIENT_ID="orders-api",
        SOCKET_TIMEOUT_MS="3000",
        CONNECT_TIMEOUT_MS="4000",
        IDLE_TIMEOUT_MS="600000",
        METADATA_REFRESH_MS="60000",
        RETRY_BACKOFF_MS="100",
        RETRY_BACKOFF_MAX_MS="900",
        ACKS="-1",
        RETRIES="3",
        LINGER_MS="10",
        BATCH_RECORDS="200",
        BATCH_BYTES="1048576",
        QUEUE_RECORDS="50000",
        QUEUE_KBYTES="2048",
        MESSAGE_TIMEOUT_MS="2000",
        REQUEST_TIMEOUT_MS="30000",
        COMPRESSION="LZ4",
    )
    wanted = {
        "client.id": "orders-api",
        "socket.timeout.ms": 3_000,
        "socket.connection.setup.timeout.ms": 4_000,
        "connections.max.idle.ms": 600_000,
        "topic.metadata.refresh.interval.ms": 60_000,
        "retry.backoff.ms": 100,
        "retry.backoff.max.ms": 900,
        "acks": "all",
        "enable.idempotence": True,
        "message.send.max.retries": 3,
        "linger.ms": 10,
        "batch.num.messages": 200,
        "batch.size": 1_048_576,
        "queue.buffering.max.messages": 50_000,
        "queue.buffering.max.kbytes": 2_048,
        "message.timeout.ms": 2_000,
        "request.timeout.ms": 30_000,
        "compression.type": "lz4",
    }
    assert {name: found[name] for name in wanted} == wanted
    reader = ExploreSettings.from_environment(variables(CLIENT_ID="orders-api", SOCKET_TIMEOUT_MS="3000"))
    assert reader.clusters.default.configuration()["client.id"] == "orders-api"
    assert reader.clusters.default.configuration()["socket.timeout.ms"] == 3_000


def test_the_longest_pause_is_never_below_the_first():
    assert written(RETRY_BACKOFF_MS="5000")["retry.backoff.max.ms"] == 5_000
    assert written(RETRY_BACKOFF_MS="100")["retry.backoff.max.ms"] == 1_000


@pytest.mark.parametrize("given", [{"ACKS": "1"}, {"RETRIES": "0"}])
def test_idempotence_is_off_where_other_settings_rule_it_out_unless_it_is_set(given: dict[str, str]):
    assert written(**given)["enable.idempotence"] is False
    with pytest.raises(SettingsError, match="KEYLANE_KAFKA_IDEMPOTENCE is true, which needs KEYLANE_KAFKA_"):
        written(**given, IDEMPOTENCE="true")


@pytest.mark.parametrize(
    ("variable", "given"),
    [
        ("SECURITY_PROTOCOL", {"SECURITY_PROTOCOL": "TLS"}),
        ("SASL_MECHANISM", {"SECURITY_PROTOCOL": "SASL_SSL"}),
        ("SASL_MECHANISM", {"SASL_MECHANISM": "GSSAPI"}),
        ("SASL_MECHANISM", SCRAM | {"SECURITY_PROTOCOL": "SSL"}),
        ("SASL_USERNAME", SCRAM | {"SASL_USERNAME": ""}),
        ("SASL_USERNAME", {"SASL_PASSWORD": "hunter2"}),
        ("SASL_PASSWORD", SCRAM | {"SASL_PASSWORD": ""}),
        ("SASL_REGION", {"SASL_MECHANISM": "AWS_MSK_IAM"}),
        ("SSL_CA", {"SSL_CA": "ca.pem"}),
        ("SSL_VERIFY", {"SSL_VERIFY": "none"}),
        ("SSL_VERIFY", {"SECURITY_PROTOCOL": "SSL", "SSL_VERIFY": "false"}),
        ("SSL_KEY", {"SECURITY_PROTOCOL": "SSL", "SSL_CERTIFICATE": PEM}),
        ("SSL_CERTIFICATE", {"SECURITY_PROTOCOL": "SSL", "SSL_KEY": KEY}),
        ("ACKS", {"ACKS": "0"}),
        ("ACKS", {"ACKS": "2"}),
        ("RETRIES", {"RETRIES": "-1"}),
        ("LINGER_MS", {"LINGER_MS": "900001"}),
        ("LINGER_MS", {"LINGER_MS": "20", "MESSAGE_TIMEOUT_MS": "20"}),
        ("RETRY_BACKOFF_MAX_MS", {"RETRY_BACKOFF_MS": "20", "RETRY_BACKOFF_MAX_MS": "10"}),
        ("CONNECT_TIMEOUT_MS", {"CONNECT_TIMEOUT_MS": "999"}),
        ("BATCH_RECORDS", {"BATCH_RECORDS": "0"}),
        ("QUEUE_RECORDS", {"QUEUE_RECORDS": "9" * 5_000}),
        ("QUEUE_FULL", {"QUEUE_FULL": "drop"}),
        ("COMPRESSION", {"COMPRESSION": "brotli"}),
        ("IDEMPOTENCE", {"IDEMPOTENCE": "yes"}),
    ],
)
def test_error_names_its_variable_and_shows_no_secret(variable: str, given: dict[str, str]):
    with pytest.raises(SettingsError) as caught:
        written(**given)
    assert caught.value.variable == K + variable
    assert "hunter2" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_secrets_are_in_no_repr():
    given = SCRAM | {"SSL_CERTIFICATE": PEM, "SSL_KEY": KEY, "SSL_KEY_PASSWORD": "hunter2"}
    clusters = json.dumps({"other": {"topics": ["*"], "bootstrap": "o:1", **lower(given)}})
    settings = ProduceSettings.from_environment(variables(**given, CLUSTERS=clusters))
    assert "hunter2" not in repr(settings) + repr(settings.clusters)
    assert "keylane" in repr(settings)


def lower(given: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in given.items()}


def clusters_of(**named: Any) -> Clusters[Connection]:
    return kafka_config.clusters(
        variables(**SCRAM, CLIENT_ID="ours", CLUSTERS=json.dumps(named)), kafka_config.connection
    )


def test_the_first_cluster_whose_pattern_matches_has_the_topic():
    found = clusters_of(
        payments={"topics": ["payments.*", "refunds"], "bootstrap": "p:1"},
        logs={"topics": ["*.log", "payments.x"], "bootstrap": "l:1"},
    )
    topics = ("payments.new", "payments.x", "refunds", "refunds2", "paymentsx", "app.log", "orders")
    assert [found.name_of(topic) for topic in topics] == [
        *("payments", "payments", "payments", "default", "default", "logs", "default")
    ]
    assert found.of("app.log").bootstrap == "l:1"
    assert list(found.by_name()) == ["default", "payments", "logs"]


def test_a_cluster_inherits_options_but_no_password():
    found = clusters_of(open={"topics": ["a"], "bootstrap": "o:1", "socket_timeout_ms": 77}).of("a")
    assert found.security == Security()
    assert (found.client.client_id, found.client.socket_timeout_ms) == ("ours", 77)


@pytest.mark.parametrize(
    ("clusters", "fault"),
    [
        ("[", "is not valid JSON"),
        ("[" * 100_000, "is nested deeper than 500 levels"),
        ('{"a": "hunter2', "is not valid JSON"),
        ("[1]", "is not a JSON object"),
        ('{"default": {"topics": ["*"], "bootstrap": "a:1"}}', "'default': a name has"),
        ('{"a b": {"topics": ["*"], "bootstrap": "a:1"}}', "'a b': a name has"),
        ('{"a": 1}', "not an object"),
        ('{"a": {"bootstrap": "a:1"}}', "topics"),
        ('{"a": {"topics": [], "bootstrap": "a:1"}}', "topics"),
        ('{"a": {"topics": "all", "bootstrap": "a:1"}}', "topics"),
        ('{"a": {"topics": ["[a]"], "bootstrap": "a:1"}}', "topics"),
        ('{"a": {"topics": ["*"]}}', "bootstrap is not set"),
        ('{"a": {"topics": ["*"], "bootstrap": "a:1", "clusters": "{}"}}', "clusters"),
        ('{"a": {"topics": ["*"], "bootstrap": "a:1", "ACKS": "1"}}', "ACKS"),
        ('{"a": {"topics": ["*"], "bootstrap": ["a:1"]}}', "bootstrap"),
        ('{"a": {"topics": ["*"], "bootstrap": "a:1", "acks": 3}}', "acks is '3'"),
        ('{"a": {"topics": ["*"], "bootstrap": "hunter2@a"}}', "bootstrap has"),
    ],
)
def test_error_of_a_cluster_names_it_and_its_field(clusters: str, fault: str):
    with pytest.raises(SettingsError, match="KEYLANE_KAFKA_CLUSTERS") as caught:
        ProduceSettings.from_environment(variables(CLUSTERS=clusters))
    assert fault in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_values_of_clusters_keep_their_order():
    found = Clusters(1, (Named("a", ("x*",), 2),)).map(lambda name, number: f"{name} {number}")
    assert (found.default, found.of("xy")) == ("default 1", "a 2")


@pytest.mark.parametrize("text", ['{"a b": "crc32"}', '{"t": "murmur3"}', '{"t": 1}', '["crc32"]', "["])
def test_error_of_partitioners_names_the_variable(text: str):
    with pytest.raises(SettingsError, match="KEYLANE_PARTITIONERS"):
        ProduceSettings.from_environment(BOOTSTRAP | {"KEYLANE_PARTITIONERS": text})


def java(**given: str) -> dict[str, str]:
    found = kafka_options.options(kafka_config.connection(variables(**given)))
    return {name.removeprefix("kafka."): value for name, value in found.items()}


def test_javas_client_gets_the_same_settings(tmp_path: Path):
    (tmp_path / "ca.pem").write_text(PEM)
    assert java() == {"bootstrap.servers": "one:9092"}
    found = java(**SCRAM | {"SASL_PASSWORD": 'a"b\\c'}, SSL_CA=str(tmp_path / "ca.pem"), SSL_VERIFY="chain")
    assert found["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="keylane" password="a\\"b\\\\c";'
    )
    assert (found["ssl.truststore.type"], found["ssl.truststore.certificates"]) == ("PEM", PEM)
    assert found["ssl.endpoint.identification.algorithm"] == ""
    mutual = java(SECURITY_PROTOCOL="SSL", SSL_CERTIFICATE=PEM, SSL_KEY=KEY, SSL_KEY_PASSWORD="hunter2")
    assert mutual["ssl.keystore.type"] == "PEM"
    assert mutual["ssl.keystore.certificate.chain"] == PEM.strip()
    assert (mutual["ssl.keystore.key"], mutual["ssl.key.password"]) == (KEY.strip(), "hunter2")


def test_javas_client_signs_its_own_tokens_for_msk():
    found = java(SASL_MECHANISM="AWS_MSK_IAM", SASL_REGION="eu-west-1", CLIENT_ID="job")
    assert (found["sasl.mechanism"], found["client.id"]) == ("AWS_MSK_IAM", "job")
    assert found["sasl.jaas.config"].startswith("software.amazon.msk.auth.iam.IAMLoginModule")


def test_settings_that_javas_client_does_not_support_are_refused():
    with pytest.raises(SettingsError, match="KEYLANE_KAFKA_SSL_VERIFY is none"):
        java(SECURITY_PROTOCOL="SSL", SSL_VERIFY="none")
    with pytest.raises(SettingsError, match="KEYLANE_KAFKA_SSL_CA can't be read: FileNotFoundError"):
        java(SECURITY_PROTOCOL="SSL", SSL_CA="/nowhere/ca.pem")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(KafkaError._AUTHENTICATION, "wrong hunter2"), "SASL_AUTHENTICATION_FAILED"),
        (KafkaError(KafkaError._SSL, "verify failed"), "SSL_HANDSHAKE_FAILED"),
        (
            KafkaError(KafkaError._TRANSPORT, "Receive failed: error:0A:SSL routines::ssl/tls alert bad"),
            "SSL_HANDSHAKE_FAILED",
        ),
        (KafkaError(KafkaError._TRANSPORT, "Connection refused"), None),
        (KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"), None),
    ],
)
def test_rejections_are_distinguished_from_other_errors(
    error: KafkaError, code: str | None, caplog: pytest.LogCaptureFixture
):
    entrance = RejectionListener(Security(password="hunter2"))
    entrance(error)
    assert getattr(entrance.error(), "code", None) == code
    assert "hunter2" not in caplog.text
    if code:
        with pytest.raises(ConnectionRejected, match=code):
            entrance.check()


@pytest.mark.parametrize("function", ["produce", "explore"])
def test_settings_that_the_client_refuses_are_a_500_and_named_in_the_log_only(
    function: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    certificate = {"SSL_CERTIFICATE": PEM, "SSL_KEY": KEY, "SSL_KEY_PASSWORD": "hunter2"}
    for name, value in variables(SECURITY_PROTOCOL="SSL", **certificate).items():
        monkeypatch.setenv(name, value)
    method, path = {"produce": ("PUT", "/topics/t/keys/k"), "explore": ("GET", "/clusters")}[function]
    answer = load_handler(function).lambda_handler(an_event(method, path, body=b"v"), None)
    problem = json.loads(answer["body"])
    assert (answer["statusCode"], problem["type"]) == (500, "urn:keylane:problem:misconfigured")
    assert "ssl.certificate.pem" in caplog.text
    assert "hunter2" not in caplog.text + answer["body"]
    assert "pem" not in answer["body"]
