"""Which ports and settings a stack gets: those asked for, else those it had, else the usual ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from keylane_local.errors import BadInput
from keylane_local.process.ports import Ports
from keylane_local.servers.redis_cluster import MIN_SHARDS
from keylane_local.stack.state import StackState
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

USUAL_KAFKA, USUAL_REDIS, USUAL_HTTP, USUAL_LOCALSTACK = 9092, 7000, 8080, 4566


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What was asked for. A port of None is free to choose; `usual` prefers the well-known ones then."""

    kafka_port: int | None = None
    redis_port: int | None = None
    http_port: int | None = None
    shards: int | None = None
    replicas: int | None = None
    appendonly: bool = True
    job: bool = True
    usual: bool = False
    functions: Path | None = None
    max_environments: int = 8
    localstack: bool = False
    localstack_port: int | None = None


def plan(
    options: StackOptions,
    data: Path,
    config: Path | None,
    before: StackState | None,
    running: Collection[str],
) -> StackState:
    """Return the state to start; parts named in `running` keep what they have.

    Raises PortInUse, and BadInput where a wish contradicts what runs or what the data folder holds.
    """
    shards = options.shards or (before.shards if before else MIN_SHARDS)
    replicas = options.replicas if options.replicas is not None else (before.replicas if before else 1)
    if shards < MIN_SHARDS:
        raise BadInput(f"a Redis Cluster has at least {MIN_SHARDS} shards, not {shards}")
    if before and (shards, replicas) != (before.shards, before.replicas) and (data / "redis").exists():
        raise BadInput(
            f"{data} holds a cluster of {before.shards} shards with {before.replicas} replicas each;"
            " `keylane down --wipe` first"
        )
    kept = _Kept(options, before, running, Ports())
    return StackState(
        kafka_port=kept.port("kafka", options.kafka_port, before.kafka_port if before else None, USUAL_KAFKA),
        controller_port=kept.port("kafka", None, before.controller_port if before else None, None),
        redis_ports=kept.redis_ports(shards * (1 + replicas)),
        http_port=kept.port("http", options.http_port, before.http_port if before else None, USUAL_HTTP),
        shards=shards,
        replicas=replicas,
        appendonly=options.appendonly,
        config=_config(options, config, before, running),
        localstack_port=_localstack_port(kept),
        functions=str((options.functions or project_root() / "functions").absolute()),
    )


def _localstack_port(kept: _Kept) -> int | None:
    """Choose a port where LocalStack is wished for, or runs; it is no part of the stack otherwise."""
    if not kept.options.localstack and "localstack" not in kept.running:
        return None
    had = kept.before.localstack_port if kept.before else None
    return kept.port("localstack", kept.options.localstack_port, had, USUAL_LOCALSTACK)


def _config(
    options: StackOptions, config: Path | None, before: StackState | None, running: Collection[str]
) -> str | None:
    wanted = str(config.absolute()) if config and options.job else None
    had = before.config if before and "job" in running else None
    if had and wanted and wanted != had:
        raise BadInput(f"the job runs with {had} already; `keylane down` first to change it")
    return had or wanted


@dataclass(frozen=True, slots=True)
class _Kept:
    options: StackOptions
    before: StackState | None
    running: Collection[str]
    ports: Ports

    def port(self, part: str, wanted: int | None, had: int | None, usual: int | None) -> int:
        if part in self.running and had:
            if wanted and wanted != had:
                raise BadInput(f"{part} runs on port {had} already; `keylane down` first to move it")
            return had
        if wanted:
            return self.ports.exactly(wanted, part, f"--{part}-port")
        if had:
            # Parts that run know this one by its port.
            return self.ports.exactly(had, part) if self.running else self.ports.rather(had)
        return self.ports.rather(usual) if self.options.usual and usual else self.ports.any()

    def redis_ports(self, count: int) -> list[tuple[int, int]]:
        wanted = self.options.redis_port
        had = self.before.redis_ports if self.before else []
        if had and "redis" in self.running:
            if wanted and wanted != had[0][0]:
                raise BadInput(f"redis runs on port {had[0][0]} already; `keylane down` first to move it")
            return had
        if wanted:
            given = [self.ports.exactly(wanted + index, "redis", "--redis-port") for index in range(count)]
        elif had:
            keep = self.ports.rather if not self.running else partial(self.ports.exactly, part="redis")
            given = [keep(port) for port, _ in had]
        elif self.options.usual:
            given = [self.ports.rather(USUAL_REDIS + index) for index in range(count)]
        else:
            given = [self.ports.any() for _ in range(count)]
        return [(port, self.ports.any()) for port in given]
