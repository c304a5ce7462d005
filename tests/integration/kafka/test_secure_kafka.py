"""A real broker that asks who is there: TLS, passwords, tokens, certificates, and secrets that change."""

from __future__ import annotations

import base64
import gc
import json
import os
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation
from moto import mock_aws
from tests.integration.functions.test_explore import asking
from tests.servers.own import create_topic, eventually, records_of
from tests.servers.secure_kafka import PASSWORD, allow_only, secure_kafka, unsecured_token
from tests.support import jobs
from tests.support.builders import a_topic, an_event, headers_of, load_handler
from tests.support.certificates import Authority
from tests.support.stopwatch import takes_about

from keylane.adapters.aws import references
from keylane.adapters.kafka import tokens
from keylane.config.kafka import connection
from keylane.errors import ConnectionRejected, LogUnavailable
from keylane_cli.check_config import check_file
from keylane_cli.check_topics import look_at
from keylane_cli.survey.cluster import PartUnreachable, reach
from keylane_local.process.ports import HOST, Ports
from keylane_spark.log.fetch_options import portable
from keylane_spark.log.fetches import PlannedRange
from keylane_spark.log.kafka_admin import JobKafka
from keylane_spark.log.log_reader import LogRangeReader
from keylane_spark.log.log_watch import LogWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.servers.secure_kafka import SecureKafka

    Put = Callable[..., tuple[int, dict[str, Any]]]

K = "KEYLANE_KAFKA_"
SCRAM_PASSWORD = "scram-secret"
WRONG = "wrong-secret"
SECRETS = (PASSWORD, SCRAM_PASSWORD, WRONG, "key-secret", "PRIVATE KEY")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with secure_kafka(tmp_path_factory.mktemp("secure-kafka")) as broker:
        yield broker


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture
def topic(secure: SecureKafka) -> str:
    name = a_topic()
    create_topic(secure.bootstrap, name, 1)
    return name


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set variables, named without KEYLANE_KAFKA_."""

    def set_all(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(K + name, value)

    return set_all


@pytest.fixture
def no_secret(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Gives all that was logged, after a look for secrets in it and in the answers."""

    def look(*answers: object) -> str:
        told = "".join([caplog.text, *capfd.readouterr(), *map(str, answers)])
        assert not [secret for secret in SECRETS if secret in told]
        return told

    return look


def producing() -> Put:
    """One warm produce function: `put(topic, value)` gives status and document."""
    function = load_handler("produce")

    def ask(topic: str, value: bytes = b"v") -> tuple[int, dict[str, Any]]:
        answer = function.lambda_handler(an_event("PUT", f"/topics/{topic}/keys/k", body=value), None)
        if answer["statusCode"] == 503:
            assert headers_of(answer)["Retry-After"] == "10"
        return answer["statusCode"], json.loads(answer["body"])

    ask.function = function  # type: ignore[attr-defined]
    return ask


def ways(secure: SecureKafka) -> dict[str, dict[str, str]]:
    """Variables of each way to authenticate."""
    tls = {"BOOTSTRAP": secure.at("SECURE"), "SSL_CA": str(secure.authority.file)}
    bob = {"SASL_USERNAME": "bob", "SASL_PASSWORD": SCRAM_PASSWORD}
    certificate = {
        "BOOTSTRAP": secure.at("MUTUAL"),
        "SECURITY_PROTOCOL": "SSL",
        "SSL_CERTIFICATE": str(secure.client.certificate),
        "SSL_KEY": secure.client.key.read_text(),
        "SSL_KEY_PASSWORD": "key-secret",
    }
    return {
        "plain": tls | {"SASL_MECHANISM": "PLAIN", "SASL_USERNAME": "alice", "SASL_PASSWORD": PASSWORD},
        "scram-256": tls | bob | {"SASL_MECHANISM": "SCRAM-SHA-256"},
        "scram-512": tls
        | bob
        | {"SASL_MECHANISM": "scram-sha-512", "SSL_CA": secure.authority.file.read_text()},
        "unencrypted": bob
        | {
            "BOOTSTRAP": secure.at("UNENCRYPTED"),
            "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "SASL_MECHANISM": "SCRAM-SHA-512",
        },
        "certificate": tls | certificate,
    }


@pytest.mark.parametrize("way", ["plain", "scram-256", "scram-512", "unencrypted", "certificate"])
def test_records_are_written_and_read_and_brokers_report_their_api_versions_by_each_way_in(
    secure: SecureKafka, topic: str, way: str, use: Callable[..., None], no_secret: Callable[..., str]
):
    use(**ways(secure)[way])
    status, written = producing()(topic)
    assert (status, written["position"]) == (201, "0:0")
    get = asking()
    status, page = get(f"/topics/{topic}/partitions/0/records")
    assert (status, [record["value"] for record in page["records"]]) == (200, ["v"])
    status, found = get("/clusters", api_versions="true")
    (broker,) = found["clusters"][0]["brokers"]
    assert (status, broker.get("why")) == (200, None)
    assert {"api_key": 18, "min_version": 0, "max_version": 4} in broker["api_versions"]
    no_secret()


@pytest.mark.parametrize("way", ["plain", "scram-256", "scram-512", "unencrypted", "certificate", "token"])
def test_tasks_of_the_job_read_and_its_driver_watches_by_each_way_in(
    secure: SecureKafka,
    topic: str,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    no_secret: Callable[..., str],
):
    monkeypatch.setattr(MSKAuthTokenProvider, "generate_auth_token", lambda _: unsecured_token())
    tls = {"BOOTSTRAP": secure.at("SECURE"), "SSL_CA": str(secure.authority.file)}
    token = tls | {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SASL_MECHANISM": "AWS_MSK_IAM",
        "SASL_REGION": "eu-west-1",
    }
    variables = (ways(secure) | {"token": token})[way]
    producer = Producer({"bootstrap.servers": secure.bootstrap})
    producer.produce(topic, b"v", b"k")
    assert producer.flush(60) == 0
    given = portable(connection({K + name: value for name, value in variables.items()}))
    reader = LogRangeReader(given)
    (rows,) = reader.read(PlannedRange(topic, 0, 0, 1), committed=True, with_headers=False)
    reader.close()
    assert rows.values.to_pylist() == [b"v"]
    watch = LogWatch(lambda: given, {topic: 1}, [topic])
    assert watch.ends().ends[topic, 0].offset == 1
    watch.close()
    no_secret(given)


READS_AS_SPARK = """
import os, sys
from pathlib import Path
from keylane.config.kafka import connection
from keylane_spark.engine import kafka_options, session
from keylane_spark.engine.connector_jars import with_iam

jars = Path(sys.argv[1])
spark = session.start(jars, with_iam(jars, {"spark.master": "local[1]"}))
options = kafka_options.options(connection(os.environ))
print(spark.read.format("kafka").options(**options).option("subscribe", sys.argv[2]).load().count())
"""


@pytest.mark.long
def test_spark_s_own_reader_offers_the_broker_a_login_by_iam(secure: SecureKafka, topic: str):
    """AWS' jar is found and speaks to the broker, which has no such mechanism."""
    variables = {
        "BOOTSTRAP": secure.at("SECURE"),
        "SSL_CA": str(secure.authority.file),
        "SASL_MECHANISM": "AWS_MSK_IAM",
        "SASL_REGION": "eu-west-1",
    }
    environment = dict(os.environ) | {K + name: value for name, value in variables.items()}
    environment |= {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "own-secret"}
    command = [sys.executable, "-c", READS_AS_SPARK, str(jobs.JARS), topic]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "Client SASL mechanism 'AWS_MSK_IAM' not enabled in the server" in done.stderr
    assert "own-secret" not in done.stderr + done.stdout


def test_tasks_of_the_job_accept_no_broker_of_another_authority_and_no_wrong_password(
    secure: SecureKafka, topic: str, stranger: Authority, no_secret: Callable[..., str]
):
    for change in ({"SSL_CA": str(stranger.file)}, {"SASL_PASSWORD": WRONG}):
        variables = ways(secure)["plain"] | change
        given = portable(connection({K + name: value for name, value in variables.items()}))
        reader = LogRangeReader(given, retry_budget_s=1, timeout_s=5)
        with pytest.raises(LogUnavailable) as refused:
            list(reader.read(PlannedRange(topic, 0, 0, 1), committed=True, with_headers=False))
        text = str(refused.value)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)  # a socket that is still open
            del refused
            gc.collect()
        no_secret(text)


def faults(secure: SecureKafka, stranger: Authority) -> dict[str, dict[str, str]]:
    plain, scram, mutual = (ways(secure)[way] for way in ("plain", "scram-512", "certificate"))
    other = stranger.certify("stranger")
    return {
        "wrong password": plain | {"SASL_PASSWORD": WRONG},
        "wrong scram password": scram | {"SASL_PASSWORD": WRONG},
        "another authority": plain | {"SSL_CA": str(stranger.file)},
        "another host's certificate": plain | {"BOOTSTRAP": secure.at("ELSEWHERE")},
        "certificate that has ended": plain | {"BOOTSTRAP": secure.at("EXPIRED")},
        "stranger's client": mutual
        | {"SSL_CERTIFICATE": str(other.certificate), "SSL_KEY": str(other.key), "SSL_KEY_PASSWORD": ""},
        "ended, but signed": plain | {"BOOTSTRAP": secure.at("EXPIRED"), "SSL_VERIFY": "chain"},
    }


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("wrong password", "SASL_AUTHENTICATION_FAILED"),
        ("wrong scram password", "SASL_AUTHENTICATION_FAILED"),
        ("another authority", "SSL_HANDSHAKE_FAILED"),
        ("another host's certificate", "SSL_HANDSHAKE_FAILED"),
        ("certificate that has ended", "SSL_HANDSHAKE_FAILED"),
        ("stranger's client", "SSL_HANDSHAKE_FAILED"),
        ("ended, but signed", "SSL_HANDSHAKE_FAILED"),
    ],
)
def test_a_rejection_is_reported_by_its_name_before_the_deadline(
    secure: SecureKafka,
    stranger: Authority,
    topic: str,
    fault: str,
    code: str,
    use: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    no_secret: Callable[..., str],
):
    use(**faults(secure, stranger)[fault])
    for variable in ("KEYLANE_PRODUCE_TIMEOUT_MS", "KEYLANE_EXPLORE_TIMEOUT_MS"):
        # The test's own bound would end it first.
        monkeypatch.setenv(variable, "280000")
    put, get = producing(), asking()
    answers = [put(topic), get(f"/topics/{topic}/partitions/0/records"), get("/topics")]
    for status, problem in answers:
        assert (status, problem["type"]) == (503, "urn:keylane:problem:log-unavailable")
        assert problem["code"] == code
        assert "127.0.0.1" not in json.dumps(problem)
    assert code in no_secret(*answers)
    assert records_of(secure.bootstrap, topic, 0) == []


def test_verification_may_be_less_than_whole(secure: SecureKafka, topic: str, use: Callable[..., None]):
    plain = ways(secure)["plain"]
    use(**plain | {"BOOTSTRAP": secure.at("ELSEWHERE"), "SSL_VERIFY": "chain"})
    assert producing()(topic)[0] == 201
    use(BOOTSTRAP=secure.at("EXPIRED"), SSL_VERIFY="none", SSL_CA="")
    assert producing()(topic)[0] == 201
    assert asking()(f"/topics/{topic}/partitions/0/offsets")[1]["offset"] == 2


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("wrong password", ["Kafka rejected the credentials at {address} (", "_PASSWORD fit?"]),
        ("another authority", ["certificate could not be verified", "{address}", "SSL_CA fit?"]),
        (
            "certificate that has ended",
            ["TLS says: certificate has expired. Whoever runs the broker has to renew it"],
        ),
        (
            "another host's certificate",
            ["certificate is not valid for '127.0.0.1'. Name the broker in --kafka as its"],
        ),
        ("no login", ["{address} takes connections", "demands TLS or a login", "SECURITY_PROTOCOL"]),
        ("nobody there", ["{address}", "Connection refused", "Is --kafka right, does the broker run"]),
        ("no such host", ["{address}", "Failed to resolve", "Is --kafka right?"]),
        ("no Kafka", ["{address} takes connections", "or is no Kafka", "Is --kafka right"]),
    ],
)
def test_a_command_says_the_cause_with_the_address(
    secure: SecureKafka,
    stranger: Authority,
    redis_cluster: str,
    use: Callable[..., None],
    no_secret: Callable[..., str],
    fault: str,
    said: list[str],
):
    more = {
        "no login": {"BOOTSTRAP": secure.at("UNENCRYPTED")},
        "nobody there": {"BOOTSTRAP": f"{HOST}:{Ports().any()}"},
        "no such host": {"BOOTSTRAP": "broker.invalid:9092"},
        "no Kafka": {"BOOTSTRAP": redis_cluster.partition(",")[0]},
    }
    variables = (faults(secure, stranger) | more)[fault]
    use(**variables)
    seconds = 3 if fault == "no Kafka" else 0.5
    with (
        takes_about(seconds),
        pytest.raises(PartUnreachable) as raised,
        reach(os.environ, {"kafka": "--kafka", "redis": "--redis"}),
    ):
        pass
    for words in said:
        assert words.format(address=variables["BOOTSTRAP"]) in str(raised.value)
    no_secret(str(raised.value))


def test_a_topic_that_the_user_may_not_see_or_read_is_named_with_what_is_not_allowed(
    secure: SecureKafka, use: Callable[..., None], tmp_path: Path
):
    hidden, shown, readable, absent = (f"rights-{name}" for name in ("hidden", "shown", "free", "freed"))
    for topic in (hidden, shown, readable):
        create_topic(secure.bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": secure.bootstrap})
    producer.produce(shown, b"{}")
    assert producer.flush(60) == 0
    allow_only(secure.bootstrap, "zoe", hidden, AclOperation.READ)
    allow_only(secure.bootstrap, "alice", shown, AclOperation.DESCRIBE)
    use(
        BOOTSTRAP=secure.at("UNENCRYPTED"),
        SECURITY_PROTOCOL="SASL_PLAINTEXT",
        SASL_MECHANISM="PLAIN",
        SASL_USERNAME="alice",
        SASL_PASSWORD=PASSWORD,
    )
    file = tmp_path / "keylane.toml"
    file.write_text("".join(f"[topics.{topic}]\n" for topic in (hidden, shown, readable, absent)))
    faults, valid = check_file(file)
    assert (faults, bool(valid)) == ([], True)
    found = {(each.where, each.what) for each in look_at(valid, os.environ) if each.kind == "wrong"}
    refused = "Kafka does not let this user"
    with pytest.raises(LogUnavailable, match=f"topic '{hidden}': TOPIC_AUTHORIZATION_FAILED"):
        JobKafka(connection(os.environ)).describe([readable, hidden])
    assert found == {
        (f"{file}:1", f"{refused} describe topic '{hidden}': TOPIC_AUTHORIZATION_FAILED"),
        (f"{file}:2", f"{refused} read topic '{shown}': TOPIC_AUTHORIZATION_FAILED"),
        (f"{file}:4", f"Kafka has no topic '{absent}': did you mean '{readable}'?"),
    }


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """AWS as moto has it, with what is fetched used for one request alone."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setattr(references, "MAX_AGE_S", -1)
    references._provider.cache_clear()
    with mock_aws():
        yield
    references._provider.cache_clear()


def keep_secret(password: str) -> None:
    store = boto3.client("secretsmanager")
    text = json.dumps({"username": "carl", "password": password})
    try:
        store.create_secret(Name="AmazonMSK_carl", SecretString=text)
    except store.exceptions.ResourceExistsException:
        store.put_secret_value(SecretId="AmazonMSK_carl", SecretString=text)


def test_a_changed_password_is_fetched_again_and_no_request_fails(
    secure: SecureKafka,
    topic: str,
    use: Callable[..., None],
    aws: None,
    no_secret: Callable[..., str],
):
    """Connections outlive a password: the clients are made to reconnect."""
    use(
        **ways(secure)["scram-512"]
        | {
            "SASL_USERNAME": "secretsmanager:AmazonMSK_carl#username",
            "SASL_PASSWORD": "secretsmanager:AmazonMSK_carl#password",
        }
    )
    path = f"/topics/{topic}/partitions/0/records"
    secure.set_password("carl", "SCRAM-SHA-512", SCRAM_PASSWORD)
    keep_secret(SCRAM_PASSWORD)
    put, get = producing(), asking()
    # The broker reports a new user a moment after it accepted the change.
    eventually(lambda: put(topic)[0] == 201)
    eventually(lambda: get(path)[0] == 200)
    secure.set_password("carl", "SCRAM-SHA-512", WRONG)
    keep_secret(WRONG)
    old = ways(secure)["scram-512"] | {"SASL_USERNAME": "carl"}

    def is_changed() -> bool:
        use(**old)
        return producing()(topic)[0] == 503

    eventually(is_changed)
    put.function.application.parts().writer.log.close()  # type: ignore[attr-defined]
    use(SASL_PASSWORD="secretsmanager:AmazonMSK_carl#password")
    assert put(topic)[0] == 201
    assert get(path)[0] == 200
    assert asking()(path)[0] == 200
    no_secret()


def test_secret_that_is_not_there_is_our_fault_and_names_the_variable(
    topic: str, use: Callable[..., None], aws: None, secure: SecureKafka, no_secret: Callable[..., str]
):
    use(**ways(secure)["plain"] | {"SASL_PASSWORD": "secretsmanager:nothing#password"})
    status, problem = producing()(topic)
    assert (status, problem["type"]) == (500, "urn:keylane:problem:misconfigured")
    assert "nothing" not in json.dumps(problem)
    assert "KEYLANE_KAFKA_SASL_PASSWORD" in no_secret(problem)


def test_a_signed_token_authenticates_and_is_renewed_before_it_expires(
    secure: SecureKafka, topic: str, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    """The broker takes what its own validator for tests takes, in the place of AWS's tokens."""
    regions: list[str] = []

    def generate(region: str) -> tuple[str, float]:
        regions.append(region)
        return unsecured_token(lifetime_s=6 if len(regions) == 1 else 300)

    monkeypatch.setattr(MSKAuthTokenProvider, "generate_auth_token", generate)
    tls = {"BOOTSTRAP": secure.at("SECURE"), "SSL_CA": str(secure.authority.file)}
    use(**tls, SASL_MECHANISM="AWS_MSK_IAM", SASL_REGION="eu-west-1")
    put = producing()
    assert put(topic)[0] == 201
    assert regions == ["eu-west-1"]
    statuses = [put(topic)[0]]

    def is_made_anew() -> bool:
        statuses.append(put(topic)[0])
        return len(regions) > 1

    eventually(is_made_anew)
    assert set(statuses) == {201}
    assert asking()(f"/topics/{topic}/partitions/0/records")[0] == 200


def test_a_token_that_the_broker_rejects_is_replaced_by_the_next_request(
    secure: SecureKafka, topic: str, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    lifetimes = iter([-60, 300])
    monkeypatch.setattr(
        MSKAuthTokenProvider,
        "generate_auth_token",
        lambda _: (unsecured_token(lifetime_s=next(lifetimes))[0], unsecured_token()[1]),
    )
    tls = {"BOOTSTRAP": secure.at("SECURE"), "SSL_CA": str(secure.authority.file)}
    use(**tls, SASL_MECHANISM="AWS_MSK_IAM", SASL_REGION="eu-west-1")
    put = producing()
    status, problem = put(topic)
    assert (status, problem["code"]) == (503, "SASL_AUTHENTICATION_FAILED")
    assert put(topic)[0] == 201


def test_tokens_are_signed_for_the_region_with_the_functions_own_credentials(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own-secret")
    token, ends_at_s = tokens.TokenSigner("eu-west-1")("")
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    asked = parse_qs(url.query)
    assert (url.hostname, asked["Action"]) == ("kafka.eu-west-1.amazonaws.com", ["kafka-cluster:Connect"])
    assert asked["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert "own-secret" not in url.query
    assert ends_at_s > 1_700_000_000


def test_without_credentials_there_is_no_token_and_no_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ConnectionRejected, match="SASL_AUTHENTICATION_FAILED"):
        tokens.TokenSigner("eu-west-1")


def clusters(secure: SecureKafka, password: str = PASSWORD) -> str:
    """The secure broker as the cluster of topics that begin with "s."."""
    fields = {name.lower(): value for name, value in ways(secure)["plain"].items()}
    return json.dumps({"safe": {"topics": ["s.*"], **fields, "sasl_password": password, "acks": 1}})


@pytest.fixture
def both(secure: SecureKafka, kafka: str) -> tuple[str, str]:
    """A topic of the default cluster, one of the secure one."""
    names = a_topic(), f"s.{a_topic()}"
    for bootstrap, name in zip((kafka, secure.bootstrap), names, strict=True):
        create_topic(bootstrap, name, 1)
    return names


def push(*topics: str) -> dict[str, Any]:
    body = json.dumps({"records": [{"topic": topic, "data": "v"} for topic in topics]}).encode()
    answer = load_handler("produce").lambda_handler(an_event("POST", "/push", body=body), None)
    document: dict[str, Any] = json.loads(answer["body"])
    return document


def test_each_topic_is_in_its_own_cluster(
    secure: SecureKafka, kafka: str, both: tuple[str, str], use: Callable[..., None]
):
    use(BOOTSTRAP=kafka, CLUSTERS=clusters(secure))
    ours, safe = both
    assert push(ours, safe, ours)["positions"] == ["0:0", "0:0", "0:1"]
    assert len(records_of(kafka, ours, 0)) == 2
    assert len(records_of(secure.bootstrap, safe, 0)) == 1
    get = asking()
    assert [get(f"/topics/{name}/partitions/0/offsets")[1]["offset"] for name in both] == [2, 1]
    assert get(f"/topics/{safe}/partitions/0/records")[1]["records"][0]["value"] == "v"
    named = {each["name"]: each["brokers"][0]["port"] for each in get("/clusters")[1]["clusters"]}
    assert named == {"default": int(kafka.partition(":")[2]), "safe": secure.listener_ports["SECURE"]}
    assert get("/topics", prefix=safe)[1]["topics"] == [{"topic": safe, "partitions": 1}]
    assert set(get("/health")[1]["parts"]) == {"kafka", "kafka.safe"}


def test_a_cluster_that_refuses_us_keeps_no_other_back(
    secure: SecureKafka,
    kafka: str,
    both: tuple[str, str],
    use: Callable[..., None],
    no_secret: Callable[..., str],
):
    use(BOOTSTRAP=kafka, CLUSTERS=clusters(secure, WRONG))
    ours, safe = both
    pushed = push(ours, safe)
    assert pushed["positions"] == ["0:0", None]
    assert pushed["errors"][1]["code"] == "SASL_AUTHENTICATION_FAILED"
    get = asking()
    default, refused = get("/clusters")[1]["clusters"]
    assert (bool(default["cluster_id"]), refused["cluster_id"]) == (True, None)
    assert "rejected the credentials" in refused["why"]
    status, health = get("/health")
    assert (status, health["parts"]["kafka"]["ready"]) == (503, True)
    assert not health["parts"]["kafka.safe"]["ready"]
    assert "rejected the credentials" in health["parts"]["kafka.safe"]["why"]
    no_secret(pushed, health)


def test_the_jobs_client_takes_the_password_that_holds_now(secure: SecureKafka, topic: str):
    given = {K + name: value for name, value in ways(secure)["scram-512"].items()}
    holding, old = (
        connection(given | {f"{K}SASL_PASSWORD": password}) for password in (SCRAM_PASSWORD, WRONG)
    )
    # Longer than the test may take: the refusal ends it.
    broker = JobKafka(old, timeout_s=280, renewed=lambda: holding)
    for ask in (broker.describe, lambda _: broker.end_offsets({topic: 1})):
        with pytest.raises(ConnectionRejected, match="SASL_AUTHENTICATION_FAILED"):
            ask([topic])
    broker.renew()
    assert broker.end_offsets({topic: 1}) == {(topic, 0): 0}
    assert broker.describe([topic])[topic].partition_count == 1


@pytest.mark.long
def test_the_job_reads_topics_that_it_may_read(
    secure: SecureKafka, redis_cluster: str, topic: str, tmp_path: Path, use: Callable[..., None]
):
    password = 'job "secret" \\ of dora'
    secure.set_password("dora", "SCRAM-SHA-512", password)
    variables = ways(secure)["scram-512"] | {"SASL_USERNAME": "dora", "SASL_PASSWORD": password}
    use(**variables)
    eventually(lambda: producing()(topic, b"by the job")[0] == 201)
    environment = {K + name: value for name, value in variables.items()}
    config = f"[job]\nheartbeat_ms = 100\n[topics.{topic}]\n"
    running = jobs.start(secure.at("SECURE"), redis_cluster, tmp_path, config, **environment)
    reader = None
    try:
        running.wait_for("keylane: ready")
        reader = jobs.State(redis_cluster, topic).reader()
        eventually(lambda: reader.value(b"k", partial=True) == b"by the job")
    finally:
        if reader is not None:
            reader.close()
        running.end()
    told = running.log.read_text(errors="replace")
    assert "secret" not in told
    assert "ScramLoginModule" not in told
