"""Real servers for the tests, each started once per session when a test first asks for it."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from tests.servers.own import (
    READY_WITHIN_S,
    guarded,
    own_cluster,
    own_kafka,
    repair,
    shorten_jvm_starts,
    wait_writable,
)
from tests.support import cpu_profile, last_logs
from tests.support.order import leave_out, shuffle_within_files

from keylane_local.process.ports import HOST, Ports
from keylane_local.servers.localstack import LocalStack
from keylane_local.stack.plan import StackOptions
from keylane_local.stack.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.aws import Aws
    from tests.servers.kafka_cluster import KafkaCluster
    from tests.servers.schema_registry import Registry

    from keylane_local.servers.kafka import Kafka
    from keylane_local.servers.redis_cluster import RedisCluster


TESTS = Path(__file__).parent

shorten_jvm_starts()

# How long an example takes says more about the machine than about the code. The gate tries the same examples
# each time; others with --hypothesis-profile=random, which prints what brings a failure back.
settings.register_profile("keylane", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("keylane")


LONGEST_FIRST = (
    "tests/integration/torture",
    "tests/integration/job",
    "tests/integration/cluster",
    "tests/integration/model",
    "tests/integration",
    "tests/contract",
)
"""The order of folders where tests run side by side, so that no process is left with what takes longest."""
SHARED = {"localstack": "servers", "stack": "servers", "kafka_cluster": "brokers", "spark_session": "spark"}
"""Servers that cost more to start twice than to wait for: the tests of a group stay in one process.

They come before all folders, in an order in which few of these servers run that no test needs any more: the
job of a stack takes a part of a core even if nothing happens.
"""
TURNS = (["localstack"], ["localstack", "stack"], ["stack"], ["kafka_cluster"], ["spark_session"])
ALONE = "spark_session"
"""A process has only one: it ends with its group also where all tests run in one process."""
LONG_VALUE = 60
"""Characters, or bytes: more of a value a test's name need not have."""
IN_PROCESSES = "PYTEST_XDIST_WORKER" in os.environ


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-profile", metavar="FOLDER", help="write CPU seconds by test file and process there"
    )
    parser.addoption("--order-seed", type=int, help="shuffle the tests of each file, as this seed does")


def pytest_configure(config: pytest.Config) -> None:
    if folder := config.getoption("--cpu-profile"):
        cpu_profile.register(config, Path(folder))
    config.pluginmanager.register(last_logs)


def pytest_report_header(config: pytest.Config) -> list[str]:
    seed = config.getoption("--order-seed")
    return [] if seed is None else [f"order of the tests of each file: --order-seed {seed}"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their folder and, for processes side by side (-n), by what stays in one of them."""
    if (seed := config.getoption("--order-seed")) is not None:
        shuffle_within_files(items, seed)
    leave_out("long", config, items)
    for item in items:
        if item.nodeid.startswith("tests/integration/"):
            item.add_marker(pytest.mark.integration)
        if item.nodeid.startswith(("tests/e2e/", "tests/compat/")):
            item.add_marker(pytest.mark.e2e)
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    if IN_PROCESSES:
        items.sort(key=_turn)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays until the end: the garbage collector need not walk through it, now or later.

    Nor need it look after each 700 objects, Python's default: that took 7 % of the unit tests' time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


def pytest_make_parametrize_id(val: object) -> str | None:
    """A test's name has the beginning of a long value: processes send each other all names, many times."""
    if isinstance(val, str | bytes) and len(val) > LONG_VALUE:
        return f"{val[:LONG_VALUE]!a}-and-{len(val) - LONG_VALUE}-more"
    return None


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _group(item: pytest.Item) -> str:
    """Tests of one group stay in one process: those of a file, or of shared servers."""
    shared = _shared(item)
    return SHARED[shared[0]] if shared else _file(item)


def _shared(item: pytest.Item) -> list[str]:
    """The shared servers that a test asks for, itself or by a parameter that names the fixture."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    names = {*getattr(item, "fixturenames", ()), *(each for each in parameters if isinstance(each, str))}
    return [name for name in SHARED if name in names]


def _turn(item: pytest.Item) -> int:
    if shared := _shared(item):
        return TURNS.index(shared)
    turns = [turn for turn, folder in enumerate(LONGEST_FIRST) if _file(item).startswith(folder)]
    return len(TURNS) + (turns[0] if turns else len(LONGEST_FIRST))


_running: dict[str, Any] = {}
"""The fixtures of the shared servers that tests have asked for, as pytest defines them."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Function, nextitem: pytest.Item | None) -> Iterator[None]:
    """Stop the shared servers after the last test of their group, and before the session's end.

    pytest has no scope for it. A version without the two private names fails each test that has a server.
    """
    for name in _shared(item):
        _running[name] = item.session._fixturemanager.getfixturedefs(name, item)[-1]
    try:
        return (yield)
    finally:
        if nextitem is not None and _group(nextitem) != _group(item):
            for name in [each for each in _running if IN_PROCESSES or each == ALONE]:
                _running.pop(name).finish(item._request)  # with the fixtures that depend on it


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A running Kafka broker, as the part of the local stack that it is."""
    with own_kafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka
        kafka.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """A running Redis Cluster of 3 primaries and 3 replicas, as the part of the local stack that it is."""
    with own_cluster(tmp_path_factory.mktemp("redis"), appendonly=True) as redis_cluster:
        # No test of a shared cluster loses a node: what does not answer for seconds is on a busy machine. A
        # failover would change which nodes are primaries under all other tests.
        for node in redis_cluster.nodes:
            node.command("CONFIG", "SET", "cluster-node-timeout", 120_000)
        yield redis_cluster
        redis_cluster.stop()


@pytest.fixture(scope="session")
def breakable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Another cluster, whose nodes tests kill and stop; `breaking` has it repaired."""
    with own_cluster(tmp_path_factory.mktemp("breakable"), appendonly=True) as redis_cluster:
        yield redis_cluster


@pytest.fixture
def breaking(breakable: RedisCluster) -> RedisCluster:
    """A cluster to break, repaired before each test."""
    return repair(breakable)


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers with a rack each, which tests kill and stop; `brokers` has all of them running."""
    from tests.servers.kafka_cluster import own_kafka_cluster  # noqa: PLC0415 (its libraries are for few tests)

    racks = {1: "zone-a", 2: "zone-b", 3: "zone-c"}
    with own_kafka_cluster(tmp_path_factory.mktemp("brokers"), racks=racks) as running:
        yield running


@pytest.fixture(scope="module")
def brokers(kafka_cluster: KafkaCluster) -> KafkaCluster:
    """Three brokers to break, all of which run when a file begins."""
    kafka_cluster.start()
    kafka_cluster.wait_ready()
    return kafka_cluster


@pytest.fixture(scope="session")
def kafka(broker: Kafka) -> str:
    """The bootstrap address of a running Kafka broker, "host:port"."""
    return broker.bootstrap


@pytest.fixture(scope="session")
def redis_cluster(cluster: RedisCluster) -> str:
    """The nodes of a running Redis Cluster in the form of KEYLANE_REDIS_NODES, "host:port,host:port"."""
    return cluster.addresses


@pytest.fixture(scope="session")
def registry_port() -> int:
    """Where the session's Schema Registry listens, once a test asks for it."""
    return Ports().any()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory, registry_port: int) -> Iterator[Registry]:
    """A running Schema Registry; a test that breaks it has one of its own."""
    from tests.servers.schema_registry import Registry  # noqa: PLC0415 (its libraries are for few tests)

    with guarded(tmp_path_factory.mktemp("registry")) as data:
        running = Registry(data, registry_port)
        running.start()
        yield running
        running.close()


@pytest.fixture(scope="session")
def moto() -> Iterator[Aws]:
    """AWS as moto has it, for all tests: each names its queues and buckets after itself."""
    from tests.servers import aws  # noqa: PLC0415 (its libraries are for few tests)

    with aws.moto() as running:
        yield running


@pytest.fixture(scope="session")
def localstack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A running LocalStack for all tests: each names its queues, buckets and stacks after itself."""
    with guarded(tmp_path_factory.mktemp("localstack")) as data:
        running = LocalStack(
            data / "home", run=data / "run", log=data / "logs" / "localstack.log", port=Ports().any()
        )
        running.start()
        running.wait_ready(READY_WITHIN_S)
        yield running
        running.kill()  # it keeps nothing, and takes up to 8 s to stop


WITH_METRICS = StackOptions(metrics=True)
"""As `keylane up` has it."""


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, registry_port: int) -> Iterator[Stack]:
    """The whole stack with the Spark job and the server, for the topics of keylane-test.toml."""
    variables = {
        "KEYLANE_SCHEMA_REGISTRY_URL": f"http://{HOST}:{registry_port}/apis/ccompat/v7",
        # A JVM that has just started, on a machine that is busy: no test is about how fast it answers.
        "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS": "20000",
        # Six at once, and the next one after a minute: a test may be slow.
        "KEYLANE_RATE_LIMITS": '{"topics": {"limited-*": {"records_per_minute": 1, "burst_s": 360}}}',
        "KEYLANE_SCHEMAS": '{"checked-*": {"schema": {"properties": {"n": {"type": "integer"}}}}}',
    }
    with (
        guarded(tmp_path_factory.mktemp("stack")) as data,
        Stack(data, TESTS / "keylane-test.toml", options=WITH_METRICS, variables=variables) as running,
    ):
        wait_writable(running.kafka)
        yield running
