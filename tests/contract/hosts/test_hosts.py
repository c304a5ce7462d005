"""One application, two hosts: the functions behind API Gateway answer as the server does, byte for byte.

What differs is in hosts.toml, with its reason. `python -m tests.contract.hosts.record` has all worlds.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.contract.hosts.case import LAMBDA, SERVER
from tests.contract.hosts.checkouts import Checkout
from tests.contract.hosts.compare import Verdict, differences, read_table
from tests.contract.hosts.recording import Recorder
from tests.contract.hosts.servers import prepared
from tests.contract.hosts.worlds import BY_NAME, WORLDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers.aws import Aws
    from tests.servers.schema_registry import Registry

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
TABLE = Path(__file__).with_name("hosts.toml")
GATE = [world.name for world in WORLDS if world.in_gate]


@pytest.fixture(scope="module")
def verdict_of(
    redis_cluster: str, kafka: str, registry: Registry, moto: Aws, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Verdict]]:
    """Both hosts' answers in a world, compared; each world is recorded once."""
    begin_ms = time.time_ns() // 1_000_000
    table, checkout, known = read_table(TABLE), Checkout.at(ROOT), {}
    with prepared(redis_cluster, kafka, registry.url, moto) as servers:
        recorder = Recorder(servers, begin_ms, tmp_path_factory.mktemp("hosts") / "log")

        def compare(name: str) -> Verdict:
            if name not in known:
                world = BY_NAME[name]
                one, other = (recorder.record(world, checkout, host) for host in (LAMBDA, SERVER))
                known[name] = Verdict(table)
                known[name].add(differences(name, one, other, between_hosts=True))
            return known[name]

        yield compare


@pytest.mark.parametrize("world", GATE)
def test_both_hosts_answer_the_same(verdict_of: Callable[[str], Verdict], world: str):
    verdict = verdict_of(world)
    assert not verdict.unmeant, "\n".join(verdict.render())[:20_000]


def test_every_difference_that_is_meant_is_there(verdict_of: Callable[[str], Verdict]):
    used = {index for world in GATE for index in verdict_of(world).counts}
    unused = [entry for index, entry in enumerate(read_table(TABLE)) if index not in used]
    assert not unused
