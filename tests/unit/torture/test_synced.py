"""The torture's mappings: one that is not what the log comes to is reported."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.torture import synced
from tests.torture.checks import Facts
from tests.torture.faults.world import Trouble
from tests.torture.oracle import Log, Logged
from tests.torture.schedule import Shape
from tests.unit.torture.test_checks import AStack, acknowledged
from tests.unit.torture.test_streams import KEY, LOG, OTHER, TwoKeys

from keylane.model.records import Options
from keylane_client import Position, Record, SyncFailed, TopicVector


def a_record(key: bytes, offset: int, value: str, partition: int = 0) -> Record:
    return Record(
        "plain", key.decode(), value, Position(partition, offset), offset, None, timedelta(), "text"
    )


class AMapping(SimpleNamespace):
    trouble = None

    def copy(self) -> dict[str, Record]:
        return {record.key: record for record in self.records}


def faults(*records: Record, end: int = 5, log: Log = LOG, troubles: tuple[Trouble, ...] = ()) -> list[str]:
    mapping: Any = AMapping(at=TopicVector({0: end}), records=records)
    return list(synced.compare("plain", mapping, Facts(log, acknowledged(), list(troubles), AStack())))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synced, "EQUAL_WITHIN_S", 0.0)


def test_a_mapping_that_is_the_fold_has_no_fault():
    assert faults(a_record(KEY, 4, "d")) == []


@pytest.mark.parametrize(
    ("records", "end", "fault"),
    [
        ((), 5, "1/000 is None, the log has b'd' at 0:4"),
        ((a_record(KEY, 2, "c"),), 5, "1/000 is (Position(partition=0, offset=2), 'c')"),
        ((a_record(KEY, 4, "x"),), 5, "'x'), the log has b'd'"),
        ((a_record(KEY, 4, "d"), a_record(OTHER, 1, "b")), 5, "1/001 is"),
        ((a_record(KEY, 4, "d"),), 4, "it is at {0: 4}, the log ends at {0: 5}"),
    ],
)
def test_what_a_mapping_lacks_keeps_or_makes_up_is_a_fault(records: tuple[Record, ...], end: int, fault: str):
    found = faults(*records, end=end)
    assert any(fault in each for each in found), found


def test_a_mapping_that_has_ended_is_a_fault():
    class Ended(AMapping):
        @property
        def at(self) -> TopicVector:
            raise SyncFailed("it ended") from ValueError("this is why")

    ended: Any = Ended(records=())
    [found] = synced.compare("plain", ended, Facts(LOG, acknowledged(), [], AStack()))
    assert "this is why" in found


def test_a_deleted_key_may_be_back_where_markers_do_not_last():
    log = TwoKeys((OTHER, b"b"), (OTHER, None), shape=Shape("plain", 1, options=Options(marker_ms=0)))
    back = faults(a_record(OTHER, 0, "b"), end=2, log=log)
    assert bool(back) != log.of("plain", OTHER).shape.is_forgetful


def test_a_stray_that_a_failover_took_back_is_excused():
    log = TwoKeys((KEY, b"a"))
    log.of("plain", KEY).records[1] = [Logged(1, 0, 9, b"stray", (), 9)]
    assert faults(a_record(KEY, 0, "a"), end=1, log=log)
    lost = tuple(Trouble("lose-writes", shard, 0.0, 9.0) for shard in range(2))
    assert faults(a_record(KEY, 0, "a"), end=1, log=log, troubles=lost) == []
