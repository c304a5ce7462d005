"""Settings from a mapping: defaults, errors that name their variable, secrets that stay secret."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.builders import FUNCTIONS

from keylane.adapters.aws import references
from keylane.adapters.kafka.admin import ReaderSettings
from keylane.adapters.kafka.options import ClientOptions, KafkaSettings, ProducerOptions, Security
from keylane.adapters.redis.cluster import Node, RedisSettings
from keylane.config.functions import (
    ExploreSettings,
    ProduceSettings,
    QuerySettings,
    SettingsError,
    redis_settings,
    registry_settings,
    renewable_redis,
    renewable_registry,
)
from keylane.config.kafka import bootstrap
from keylane.model.clusters import Clusters

if TYPE_CHECKING:
    from collections.abc import Mapping

REDIS = {"KEYLANE_REDIS_NODES": "one:7001,two:7002"}
KAFKA = {"KEYLANE_KAFKA_BOOTSTRAP": "one:9092,two:9092"}


def test_query_needs_only_its_nodes():
    settings = QuerySettings.from_environment(REDIS)
    assert settings == QuerySettings(
        state_timeout_ms=1_000,
        wait_default_ms=5_000,
        wait_max_ms=20_000,
        layout_ttl_s=30,
        registry_timeout_ms=2_000,
    )
    assert renewable_redis(REDIS) == RedisSettings((Node("one", 7001), Node("two", 7002)))


def test_query_reads_all_its_variables():
    environment = REDIS | {
        "KEYLANE_REDIS_USERNAME": "reader",
        "KEYLANE_REDIS_PASSWORD": "hunter2",
        "KEYLANE_REDIS_TLS": "true",
        "KEYLANE_REDIS_TLS_CA_FILE": "ca.pem",
        "KEYLANE_STATE_TIMEOUT_MS": "700",
        "KEYLANE_WAIT_DEFAULT_MS": "0",
        "KEYLANE_WAIT_MAX_MS": "900",
        "KEYLANE_LAYOUT_TTL_S": "5",
    }
    settings = QuerySettings.from_environment(environment)
    assert renewable_redis(environment) == RedisSettings(
        (Node("one", 7001), Node("two", 7002)), "reader", "hunter2", tls=True, tls_ca_file="ca.pem"
    )
    assert (settings.state_timeout_ms, settings.wait_default_ms) == (700, 0)
    assert (settings.wait_max_ms, settings.layout_ttl_s) == (900, 5)


def test_default_wait_is_never_above_the_maximum():
    assert QuerySettings.from_environment(REDIS | {"KEYLANE_WAIT_MAX_MS": "100"}).wait_default_ms == 100


def test_explore_needs_only_its_brokers():
    settings = ExploreSettings.from_environment(KAFKA)
    assert settings == ExploreSettings(
        Clusters(ReaderSettings("one:9092,two:9092", 5_000)), False, False, 5_000, 2_000, 1_000, 2_000
    )


def test_explore_reads_all_its_variables():
    timeouts = {
        "KEYLANE_EXPLORE_TIMEOUT_MS": "300",
        "KEYLANE_HEALTH_TIMEOUT_MS": "200",
        "KEYLANE_STATE_TIMEOUT_MS": "100",
        "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS": "50",
    }
    registry = {"KEYLANE_SCHEMA_REGISTRY_URL": "http://registry:8081"}
    settings = ExploreSettings.from_environment(KAFKA | REDIS | registry | timeouts)
    assert settings == ExploreSettings(
        Clusters(ReaderSettings("one:9092,two:9092", 300)), True, True, 300, 200, 100, 50
    )
    with pytest.raises(SettingsError, match="KEYLANE_EXPLORE_TIMEOUT_MS"):
        ExploreSettings.from_environment(KAFKA | {"KEYLANE_EXPLORE_TIMEOUT_MS": "0"})


def test_produce_needs_only_its_brokers():
    producer = ProducerOptions("all", True, 5, "wait", "none")
    kafka = KafkaSettings(
        "one:9092,two:9092", "murmur2", 1_048_576, 5_000, {}, {}, Security(), ClientOptions(), producer
    )
    assert ProduceSettings.from_environment(KAFKA) == ProduceSettings(
        Clusters(kafka), 5_000, 1_048_576, pushes_as_kprf=False
    )


def test_produce_reads_all_its_variables():
    settings = ProduceSettings.from_environment(
        KAFKA
        | {
            "KEYLANE_PRODUCE_TIMEOUT_MS": "300",
            "KEYLANE_MAX_VALUE_BYTES": "10",
            "KEYLANE_PARTITIONER": "crc32",
            "KEYLANE_PARTITION_BY": '{"trips": "prefix:|", "flights": "key"}',
            "KEYLANE_PUSH_COMPATIBILITY": "kprf",
        }
    )
    kafka = settings.clusters.default
    assert (kafka.partitioner, kafka.value_limit_bytes, kafka.timeout_ms) == ("crc32", 10, 300)
    assert kafka.partition_by == {"trips": "prefix:|"}
    assert settings == ProduceSettings(Clusters(kafka), 300, 10, pushes_as_kprf=True)
    with pytest.raises(SettingsError, match="KEYLANE_PUSH_COMPATIBILITY"):
        ProduceSettings.from_environment(KAFKA | {"KEYLANE_PUSH_COMPATIBILITY": "karapace"})


def test_no_repr_shows_the_password():
    settings = renewable_redis(REDIS | {"KEYLANE_REDIS_PASSWORD": "hunter2"})
    assert settings.password == "hunter2"
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("KEYLANE_REDIS_NODES", ""),
        ("KEYLANE_REDIS_NODES", "  "),
        ("KEYLANE_REDIS_NODES", "one"),
        ("KEYLANE_REDIS_NODES", "one:"),
        ("KEYLANE_REDIS_NODES", ":7001"),
        ("KEYLANE_REDIS_NODES", "one:seven"),
        ("KEYLANE_REDIS_NODES", "one:0"),
        ("KEYLANE_REDIS_NODES", "one:65536"),
        ("KEYLANE_REDIS_NODES", "one:7001,"),
        ("KEYLANE_REDIS_NODES", "redis://user:hunter2@one:7001"),
        ("KEYLANE_REDIS_TLS", "yes"),
        ("KEYLANE_STATE_TIMEOUT_MS", "0"),
        ("KEYLANE_STATE_TIMEOUT_MS", "1s"),
        ("KEYLANE_STATE_TIMEOUT_MS", "-1"),
        ("KEYLANE_WAIT_MAX_MS", "1.5"),
        ("KEYLANE_LAYOUT_TTL_S", "long"),
    ],
)
def test_error_of_query_names_its_variable_and_shows_no_secret(variable: str, text: str):
    read = renewable_redis if "REDIS" in variable else QuerySettings.from_environment
    with pytest.raises(SettingsError, match=variable) as caught:
        read(REDIS | {variable: text})
    assert caught.value.variable == variable
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("KEYLANE_KAFKA_BOOTSTRAP", ""),
        ("KEYLANE_KAFKA_BOOTSTRAP", "PLAINTEXT://one:9092"),
        ("KEYLANE_PRODUCE_TIMEOUT_MS", "soon"),
        ("KEYLANE_MAX_VALUE_BYTES", "1MiB"),
        ("KEYLANE_PARTITIONER", "murmur3"),
        ("KEYLANE_PARTITION_BY", "trips=prefix:|"),
        ("KEYLANE_PARTITION_BY", '["prefix:|"]'),
        ("KEYLANE_PARTITION_BY", '{"a b": "prefix:|"}'),
        ("KEYLANE_PARTITION_BY", '{"trips": "prefix:"}'),
        ("KEYLANE_PARTITION_BY", '{"trips": null}'),
        ("KEYLANE_PARTITION_BY", "[" * 100_000),
    ],
)
def test_error_of_produce_names_its_variable(variable: str, text: str):
    with pytest.raises(SettingsError, match=variable):
        ProduceSettings.from_environment(KAFKA | {variable: text})


def test_missing_variable_is_named():
    with pytest.raises(SettingsError, match="KEYLANE_REDIS_NODES is not set"):
        renewable_redis({})


def test_addresses_may_have_spaces_between_and_brackets():
    nodes = redis_settings({"KEYLANE_REDIS_NODES": "one:7001, [::1]:7002"}).nodes
    assert nodes == (Node("one", 7001), Node("::1", 7002))
    assert bootstrap({"KEYLANE_KAFKA_BOOTSTRAP": "one:9092, [::1]:9093"}) == "one:9092,[::1]:9093"


REGISTRY = {
    "KEYLANE_SCHEMA_REGISTRY_URL": "https://registry.example.org:8443/apis/ccompat/v7",
    "KEYLANE_SCHEMA_REGISTRY_USERNAME": "reader",
    "KEYLANE_SCHEMA_REGISTRY_PASSWORD": "hunter2",
    "KEYLANE_SCHEMA_REGISTRY_CA_FILE": "ca.pem",
}


def test_registry_settings_are_read_and_their_repr_shows_no_password():
    settings = registry_settings(REGISTRY)
    assert (settings.url, settings.ca_file) == (REGISTRY["KEYLANE_SCHEMA_REGISTRY_URL"], "ca.pem")
    assert (settings.username, settings.password) == ("reader", "hunter2")
    assert "hunter2" not in repr(settings)


def test_a_registrys_login_is_read_again_where_it_refers_to_a_secret(monkeypatch: pytest.MonkeyPatch):
    assert renewable_registry(REGISTRY).renewed is None
    passwords = iter(["old", "new"])

    def resolve(environment: Mapping[str, str]) -> Mapping[str, str]:
        assert "OTHER" not in environment
        return {**environment, "KEYLANE_SCHEMA_REGISTRY_PASSWORD": next(passwords)}

    monkeypatch.setattr(references, "resolved", resolve)
    secret = {"KEYLANE_SCHEMA_REGISTRY_PASSWORD": "secretsmanager:registry#password", "OTHER": "x"}
    settings = renewable_registry(REGISTRY | secret)
    assert settings.password == "old"
    assert settings.renewed is not None
    assert settings.renewed().credentials == ("reader", "new")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "registry:8081",
        "ftp://registry:8081",
        "http://",
        "http://registry:port",
        "http://registry:0",
        "http://[::1",
        "http://reader:hunter2@registry:8081",
        "http://registry:8081/?token=hunter2",
    ],
)
def test_error_of_the_registrys_url_names_its_variable_and_shows_no_secret(url: str):
    with pytest.raises(SettingsError, match="KEYLANE_SCHEMA_REGISTRY_URL") as caught:
        registry_settings(REGISTRY | {"KEYLANE_SCHEMA_REGISTRY_URL": url})
    assert "hunter2" not in str(caught.value)


NOT_OF_QUERY = """
    redis confluent_kafka boto3 botocore opentelemetry pyspark pydantic ssl asyncio email importlib.metadata
    http.client google zstandard keylane.formats.avro_reader keylane.formats.avro_schema
    keylane.formats.confluent keylane.adapters.registry
"""
NOT_OF_PRODUCE = "redis boto3 botocore opentelemetry pyspark pydantic"


@pytest.mark.parametrize(
    ("function", "needed", "others"),
    [
        ("query", {"hiredis", "keylane.query.decoding"}, NOT_OF_QUERY.split()),
        ("produce", {"confluent_kafka"}, NOT_OF_PRODUCE.split()),
    ],
)
def test_a_function_imports_no_client_but_its_own_and_nothing_of_a_registry_or_of_compression(
    function: str, needed: set[str], others: list[str]
):
    """Before it needs one: it has read a value here that is not compressed."""
    code = f"""
import sys
import handler, keylane.wiring.{function}
from keylane.state import codec
codec.decode_record(b"k", codec.encode_record(b"v", 1, 1), 0)
print(*sys.modules)
"""
    command = [sys.executable, "-c", code]
    folder = FUNCTIONS / function
    done = subprocess.run(command, check=True, timeout=60, cwd=folder, capture_output=True, text=True)
    imported = set(done.stdout.split())
    assert needed <= imported
    assert not {*others} & imported
