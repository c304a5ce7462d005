"""Kafka itself: topics, partitions, offsets, raw records, clusters, health; as REST Proxy shows them, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.hosts.case import Case
from tests.contract.hosts.seeding import GONE, RAW, VOID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Headers, Names

V2: Headers = (("Accept", "application/vnd.kafka.v2+json"),)
HOSTS: tuple[Headers, ...] = (
    (),
    (("Host", "kafka.example.org:8080"),),
    (("X-Forwarded-Proto", "https"),),
    (("Host", "abc123.execute-api.eu-west-1.amazonaws.com"),),
    (("Host", "a.example"), ("X-Forwarded-Proto", "https, http"), ("X-Forwarded-Host", "b.example")),
)


def whole_cluster_cases(names: Names) -> Iterator[Case]:
    """What names all topics of Kafka, those of this run too."""
    for target in (
        "/topics",
        "/topics?limit=3",
        "/topics?after=hosts-m",
        "/topics?prefix=__",
        "/metadata/partitions",
    ):
        for headers in ((), V2):
            yield Case("GET", target, headers)
            yield Case("HEAD", target, headers)
    for headers in HOSTS:
        yield Case("GET", f"/v3/clusters/{names.cluster}/topics", headers)


def kafka_cases(names: Names) -> Iterator[Case]:
    """What is of single topics, of clusters and of their parts."""
    for query in (
        "?prefix=hosts-f",
        "?prefix=hosts-f&limit=1",
        "?prefix=hosts-f&after=hosts-flights",
        "?prefix=zz",
    ):
        yield Case("GET", f"/topics{query}")
    for topic in (
        "hosts-flights",
        RAW,
        GONE,
        VOID,
        "hosts-building",
        "hosts-nowhere",
        "hosts-left",
        "__transaction_state",
    ):
        for headers in ((), V2):
            yield Case("GET", f"/topics/{topic}", headers)
            yield Case("GET", f"/topics/{topic}/partitions", headers)
            yield Case("GET", f"/topics/{topic}/partitions/0", headers)
            yield Case("GET", f"/topics/{topic}/partitions/0/offsets", headers)
            yield Case("HEAD", f"/topics/{topic}/partitions/0/offsets", headers)
        for headers in HOSTS:
            for path in ("", "/partitions", "/partitions/0", "/partitions/0/offset", "/partitions/99"):
                yield Case("GET", f"/v3/clusters/{names.cluster}/topics/{topic}{path}", headers)
    yield from _log_cases()
    for headers in (*HOSTS, V2):
        for path in ("/clusters", "/brokers", "/v3/clusters", f"/v3/clusters/{names.cluster}", "/health"):
            yield Case("GET", path, headers)
        for path in ("/brokers", "/brokers/1", "/brokers/99", "/brokers/1/configs/log.retention.ms"):
            yield Case("GET", f"/v3/clusters/{names.cluster}{path}", headers)
    yield Case("HEAD", "/health")
    for path in (
        "configs",
        "replicas",
        "configs/cleanup.policy",
        "configs/none",
        "consumer-groups",
        "partitions/0/replicas",
        "partitions/0/replicas/99",
        "partitions/0/reassignment",
    ):
        yield Case("GET", f"/v3/clusters/{names.cluster}/topics/hosts-flights/{path}")


def _log_cases() -> Iterator[Case]:
    offsets = (
        "",
        "?at=earliest",
        "?at=latest",
        "?at=max",
        "?at=0",
        "?at=1700000003000",
        "?at=2023-11-14T22:13:25Z",
        "?at=2100-01-01",
    )
    for topic, partition in (
        (RAW, 0),
        (RAW, 1),
        (RAW, 2),
        (GONE, 0),
        (VOID, 0),
        ("hosts-flights", 8),
        (RAW, 3),
    ):
        path = f"/topics/{topic}/partitions/{partition}"
        for query in offsets:
            yield Case("GET", f"{path}/offsets{query}")
            isolation = f"{query}&isolation=read_uncommitted" if query else "?isolation=read_uncommitted"
            yield Case("GET", f"{path}/offsets{isolation}")
        for query in (
            *(
                "",
                "?offset=0",
                "?offset=3",
                "?offset=5&limit=2",
                "?offset=latest",
                "?offset=earliest&limit=1",
                "?max_bytes=1",
            ),
            *(
                "?offset=999",
                "?isolation=read_uncommitted",
                "?limit=1000&max_bytes=4194304",
                "?max_bytes=1500000",
                "?offset=10",
            ),
        ):
            yield Case("GET", f"{path}/records{query}")
        yield Case("HEAD", f"{path}/records")
        yield Case("GET", f"{path}/records", V2)
