"""The worlds in which requests are sent: settings, and what is well or not with the servers behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.contract.hosts.case import HOSTS, LAMBDA, titled
from tests.contract.hosts.corpus import (
    agents,
    compat,
    conditions,
    explore,
    jwts,
    many,
    pages,
    parameters,
    paths,
    raw,
    reads,
    rest_proxy_v2,
    rest_proxy_v3,
    samples,
    settings,
    tokens,
    writes,
)
from tests.contract.hosts.variables import (
    changed,
    closed_limits,
    cluster_away,
    failing_queue,
    limits,
    narrowed,
    overlapping,
    queued,
    rules,
    saved_by_queue,
    secrets_away,
    spent_limits,
    two_clusters,
    usual,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.contract.hosts.case import Case, Names
    from tests.contract.hosts.servers import Servers
    from tests.contract.hosts.variables import Changes

    Cases = Callable[[Names], Iterable[Case]]


@dataclass(frozen=True, slots=True)
class World:
    """Settings with the requests that are sent under them.

    `changes`: what differs from the settings of `usual`; None: it is not set. `drains`: what is in the queue
    afterwards goes to Kafka. `hangs`: something does not answer. `in_gate`: it is quick.
    """

    name: str
    cases: tuple[Cases, ...]
    changes: Changes
    hosts: tuple[str, ...] = HOSTS
    requires_tokens: bool = False
    as_text: bool = False
    drains: bool = False
    hangs: bool = False
    in_gate: bool = False

    def requests(self, names: Names) -> list[Case]:
        """The requests, with their titles, which are the same in every run."""
        return titled((case for cases in self.cases for case in cases(names)), names.tag)

    def variables(self, servers: Servers, names: Names) -> dict[str, str]:
        """The settings of both hosts."""
        found = {**usual(servers), **self.changes(servers, names)}
        return {name: value for name, value in found.items() if value is not None}


_WELL = (
    *(
        paths.route_cases,
        paths.accept_cases,
        paths.key_path_cases,
        paths.name_path_cases,
        paths.nowhere_cases,
    ),
    *(parameters.parameter_cases, reads.value_cases, reads.lane_cases),
    *(conditions.condition_cases, conditions.base64_cases, many.many_cases, many.join_cases),
    *(
        pages.cursor_cases,
        pages.range_cases,
        pages.count_cases,
        pages.history_cases,
        pages.view_cases,
        pages.stream_cases,
    ),
    *(explore.kafka_cases, explore.whole_cluster_cases),
    *(writes.key_cases, writes.push_cases, writes.framing_cases, writes.event_cases),
    *(rest_proxy_v2.v2_cases, rest_proxy_v2.v2_schema_cases),
    *(rest_proxy_v3.v3_cases, rest_proxy_v3.v3_schema_cases),
    *(compat.compat_cases, raw.raw_cases, raw.own_page_cases, agents.agent_cases),
)
_EVERY = (samples.route_samples, samples.v2_read_samples, samples.write_samples, samples.schema_samples)
FAULTS = {
    "TOPICS": ("{", '{"reads": []}', '{"read": "x"}'),
    "BASE_PATH": ("kafka/",),
    "CORS_ORIGIN": ("app.example.org",),
    "REDIS_NODES": ("nowhere", "a:b,c:d"),
    "KAFKA_BOOTSTRAP": ("nowhere",),
    "KAFKA_SECURITY_PROTOCOL": ("TLS",),
    "KAFKA_CLUSTERS": ('{"a": 1}',),
    "STATE_TIMEOUT_MS": ("soon",),
    "WAIT_MAX_MS": ("-1",),
    "MAX_VALUE_BYTES": ("0",),
    "RATE_LIMITS": ('{"topics": {"*": {"per_second": 1}}}',),
    "SCHEMAS": ('{"*": {}}',),
    "SCHEMA_REGISTRY_URL": ("ftp://x",),
    "METRICS": ("perhaps",),
    "CALLER": ("cookie",),
    "ASYNC": ("queue",),
    "QUEUE_URL": ("nowhere",),
    "PUSH_COMPATIBILITY": ("kafka",),
}
"""Settings that are wrong, by name without KEYLANE_."""

WORLDS = (
    World("well", _WELL, changed(), in_gate=True),
    World(
        "text-bodies",
        (
            samples.route_samples,
            samples.write_samples,
            writes.push_cases,
            rest_proxy_v2.v2_cases,
            rest_proxy_v3.v3_cases,
        ),
        changed(),
        hosts=(LAMBDA,),
        as_text=True,
    ),
    World("no-redis", _EVERY, changed(REDIS_NODES=None), in_gate=True),
    World("no-kafka", _EVERY, changed(KAFKA_BOOTSTRAP=None)),
    World("no-registry", (samples.schema_samples, samples.route_samples), changed(SCHEMA_REGISTRY_URL=None)),
    World("nothing-set", (samples.fault_samples,), changed(REDIS_NODES=None, KAFKA_BOOTSTRAP=None)),
    World("redis-away", _EVERY, without("redis")),
    World(
        "kafka-away", (samples.slow_samples, samples.write_samples, samples.v2_read_samples), without("kafka")
    ),
    World("registry-away", (samples.schema_samples,), without("registry")),
    World("redis-hangs", (samples.slow_samples,), without("redis", hanging=True), hangs=True),
    World("kafka-hangs", (samples.slow_samples,), without("kafka", hanging=True), hangs=True),
    World("registry-hangs", (samples.schema_samples,), without("registry", hanging=True), hangs=True),
    World("limited", (settings.limited_cases,), limits, in_gate=True),
    World("limits-uncounted", (samples.slow_samples, samples.write_samples), closed_limits, in_gate=True),
    World("limited-compat", (compat.spending_cases, compat.limited_cases), spent_limits),
    World("queued", (samples.write_samples, writes.key_cases, writes.push_cases), queued(), drains=True),
    World("queued-unordered", (samples.write_samples,), queued(fifo=False), drains=True),
    World("delivered", (samples.write_samples,), queued(ASYNC="deliver"), drains=True),
    World("queue-away", (samples.write_samples,), failing_queue),
    World("saved-by-queue", (samples.slow_samples,), saved_by_queue),
    World(
        "tokens",
        (tokens.token_cases,),
        changed(ACCESS=tokens.access()),
        requires_tokens=True,
        in_gate=True,
    ),
    World(
        "tokens-of-issuer",
        (jwts.jwt_cases,),
        changed(ACCESS=jwts.access()),
        requires_tokens=True,
        in_gate=True,
    ),
    World(
        "narrowed",
        (settings.narrowed_cases,),
        narrowed,
        in_gate=True,
    ),
    World("origin", (settings.origin_cases,), changed(CORS_ORIGIN=settings.ORIGIN), in_gate=True),
    World(
        "origin-tokens",
        (settings.origin_cases,),
        changed(CORS_ORIGIN="*", ACCESS=tokens.access()),
        requires_tokens=True,
    ),
    World("base-path", (settings.base_path_cases,), changed(BASE_PATH=settings.BASE_PATH), in_gate=True),
    World(
        "kprf",
        (compat.kprf_cases, writes.push_cases),
        changed(PUSH_COMPATIBILITY="kprf"),
        in_gate=True,
    ),
    World("small-values", (settings.size_cases,), changed(MAX_VALUE_BYTES="1000")),
    World("checked", (settings.checked_cases,), rules),
    World("request-ids", (samples.write_samples, writes.key_cases), changed(REQUEST_ID_HEADER="request-id")),
    World("no-traces", (writes.key_cases,), changed(TRACE_HEADERS="false")),
    World("two-clusters", _EVERY, two_clusters),
    World("secrets-away", (samples.fault_samples,), secrets_away),
    World("refused", (settings.refused_cases,), changed()),
    World("overlapping", (settings.overlapping_cases,), overlapping),
    World("cluster-away", (samples.slow_samples, samples.v2_read_samples), cluster_away),
    *(
        World(f"wrong ACCESS {given}", (samples.fault_samples,), changed(ACCESS=given), requires_tokens=True)
        for given in (None, "{}", "{", '{"a": {"name": "b"}}')
    ),
    *(
        World(f"wrong {name} {value}", (samples.fault_samples,), changed(**{name: value}))
        for name, values in FAULTS.items()
        for value in values
    ),
)
BY_NAME = {world.name: world for world in WORLDS}
