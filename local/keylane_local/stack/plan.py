"""The ports and settings of a stack: those requested, else those it had, else defaults."""

import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from keylane_local.errors import BadInput
from keylane_local.process.ports import HOST, OF_PROCESS, Ports, Reservations, is_own_address
from keylane_local.servers.redis_cluster import MIN_SHARDS
from keylane_local.stack.state import StackState

DEFAULT_KAFKA, DEFAULT_REDIS, DEFAULT_HTTP, DEFAULT_LOCALSTACK = 9092, 7000, 8080, 4566
DEFAULT_METRICS = 9464
DEMO_CONFIG = "demo.toml"
"""The demo's topics and views, in the data folder of a stack whose folder has no file of its own."""


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What the user requests. A port of None: any free one, but the default if `default_ports`.

    `metrics`: the job serves its metrics for Prometheus, unless its file says what to do with them.
    `http_host`: the address of the server; 0.0.0.0: all of them.
    `host`: the address of Kafka and Redis, which nothing protects there; None: as before, at first loopback.
    `outside_kafka`, `outside_redis`: addresses of those that exist, and are used instead of local ones.
    """

    kafka_port: int | None = None
    redis_port: int | None = None
    http_port: int | None = None
    shards: int | None = None
    replicas: int | None = None
    appendonly: bool = True
    job: bool = True
    default_ports: bool = False
    localstack: bool = False
    localstack_port: int | None = None
    host: str | None = None
    outside_kafka: str | None = None
    outside_redis: str | None = None
    metrics: bool = False
    http_host: str = HOST


def plan_stack(
    options: StackOptions,
    data: Path,
    config: Path | None,
    before: StackState | None,
    running: Collection[str],
    reservations: Reservations = OF_PROCESS,
) -> StackState:
    """Return the stack to start. Parts named in `running` keep their settings from `before`.

    The ports of the others are reserved by `reservations`.

    Raises PortInUse, and BadInput if an option contradicts a running part or the data folder.
    """
    shards = options.shards or (before.shards if before else MIN_SHARDS)
    replicas = options.replicas if options.replicas is not None else (before.replicas if before else 1)
    if shards < MIN_SHARDS:
        raise BadInput(f"a Redis Cluster needs at least {MIN_SHARDS} shards, not {shards}")
    if before and (shards, replicas) != (before.shards, before.replicas) and (data / "redis").exists():
        raise BadInput(
            f"{data} holds a cluster of {before.shards} shards with {before.replicas} replicas each;"
            " run `keylane down --wipe` first to change that"
        )
    _check_outside("kafka", options.outside_kafka, running)
    _check_outside("redis", options.outside_redis, running)
    host = _choose_host(options, before, running)
    chosen = _ChosenPorts(options, before, running, Ports(host, reservations))
    return StackState(
        kafka_port=chosen.port("kafka", "kafka_port", DEFAULT_KAFKA),
        controller_port=chosen.port("kafka", "controller_port", None),
        redis_ports=chosen.redis_ports(shards * (1 + replicas)),
        http_port=chosen.port("server", "http_port", DEFAULT_HTTP),
        shards=shards,
        replicas=replicas,
        appendonly=options.appendonly,
        config=_choose_config(options, data / DEMO_CONFIG, config, before, running),
        localstack_port=(
            chosen.port("localstack", "localstack_port", DEFAULT_LOCALSTACK)
            if options.localstack or "localstack" in running
            else None
        ),
        host=host,
        outside_kafka=options.outside_kafka,
        outside_redis=options.outside_redis,
        metrics_port=(
            chosen.port("job", "metrics_port", DEFAULT_METRICS)
            if options.metrics and not _has_metrics(config)
            else None
        ),
        http_host=options.http_host,
    )


def _check_outside(part: str, wanted: str | None, running: Collection[str]) -> None:
    if wanted and part in running:
        raise BadInput(f"a {part} of this stack runs; run `keylane down` first to use that at {wanted}")


def _has_metrics(config: Path | None) -> bool:
    """Return whether a job's file, which is valid, says what is done with its metrics."""
    return config is not None and "metrics" in tomllib.loads(config.read_text("utf-8-sig")).get("job", {})


def _choose_host(options: StackOptions, before: StackState | None, running: Collection[str]) -> str:
    present = before.host if before else HOST
    if options.host is None or options.host == present:
        return present
    if {"kafka", "redis"} & set(running):
        raise BadInput(f"Kafka and Redis run on {present} already; run `keylane down` first to move them")
    if not is_own_address(options.host):
        raise BadInput(
            f"{options.host!r} is not an IPv4 address of this machine: `ip -4 address` (Linux) or"
            " `ipconfig getifaddr en0` (macOS) prints those that it has"
        )
    return options.host


def _choose_config(
    options: StackOptions,
    demo: Path,
    config: Path | None,
    before: StackState | None,
    running: Collection[str],
) -> str | None:
    wanted = str(config.absolute()) if config and options.job else None
    present = before.config if before and "job" in running else None
    if wanted and present == str(demo):
        return wanted  # a file of one's own takes the place of the demo's
    if present and wanted and wanted != present:
        raise BadInput(f"the job runs with {present} already; run `keylane down` first to change it")
    return present or wanted


@dataclass(frozen=True, slots=True)
class _ChosenPorts:
    options: StackOptions
    before: StackState | None
    running: Collection[str]
    ports: Ports

    def port(self, part: str, field: str, default: int | None) -> int:
        """Choose the port that is kept in the state's field, and requested by the option of that name."""
        wanted: int | None = getattr(self.options, field, None)
        present: int | None = getattr(self.before, field, None)
        if part == "kafka" and self.options.outside_kafka:
            return present or 0
        self._check_running(part, wanted, present)
        if part in self.running and present:
            return present
        if wanted:
            return self.ports.exactly(wanted, part, f"--{part}-port")
        if present:
            return self._keep(present, part)
        return self.ports.rather(default) if self.options.default_ports and default else self.ports.any()

    def redis_ports(self, count: int) -> list[tuple[int, int]]:
        """Choose (port, bus port) of `count` nodes; a requested port is the first of consecutive ones."""
        wanted = self.options.redis_port
        present = self.before.redis_ports if self.before else []
        if self.options.outside_redis:
            return present
        self._check_running("redis", wanted, present[0][0] if present else None)
        if present and "redis" in self.running:
            return present
        if wanted:
            chosen = [self.ports.exactly(wanted + index, "redis", "--redis-port") for index in range(count)]
        elif present:
            chosen = [self._keep(port, "redis") for port, _ in present]
        elif self.options.default_ports:
            chosen = [self.ports.rather(DEFAULT_REDIS + index) for index in range(count)]
        else:
            chosen = [self.ports.any() for _ in range(count)]
        return [(port, self.ports.any()) for port in chosen]

    def _keep(self, port: int, part: str) -> int:
        """Take the port of the last start again. It must be free if other parts run, because they use it."""
        return self.ports.exactly(port, part) if self.running else self.ports.rather(port)

    def _check_running(self, part: str, wanted: int | None, present: int | None) -> None:
        if part in self.running and present and wanted and wanted != present:
            raise BadInput(f"{part} runs on port {present} already; run `keylane down` first to move it")
