"""The views that requests read: what they compute, and their windows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.contract.hosts.topics import BASE_MS, PREFIX

from keylane.state.windows import Column, Definition

if TYPE_CHECKING:
    from collections.abc import Mapping

DAY_MS = 86_400_000
DAY_0_MS = BASE_MS - BASE_MS % DAY_MS
COLUMNS = (
    Column("n", "count"),
    Column("total", "sum", "amount"),
    Column("least", "min", "amount"),
    Column("most", "max", "amount"),
    Column("mean", "avg", "amount"),
    Column("last", "latest", "note", "version"),
)
Windows = dict[tuple[bytes, int, int | None], list[Any]]


@dataclass(frozen=True, slots=True)
class SeedView:
    """A view. `windows`: states of the columns by key, start and end. `watermark_ms`: up to where windows are
    final; None: no lane has committed anything."""

    name: str
    definition: Definition
    windows: Mapping[tuple[bytes, int, int | None], list[Any]] = field(default_factory=dict)
    watermark_ms: int | None = 0
    partitions: int = 3
    is_complete: bool = True
    has_lanes: bool = True


def _states(count: int) -> list[Any]:
    text = json.dumps("x" * count)
    return [count, f"{count}.50", "-1", "1e3", [f"{count}", 3], ["7", 0, count, text]]


def _days(*keys: bytes) -> Windows:
    return {
        (key, DAY_0_MS + day * DAY_MS, DAY_0_MS + (day + 1) * DAY_MS): _states(day + 1)
        for key in keys
        for day in range(6)
    }


def _view(name: str, windows: Windows, watermark_ms: int | None = 0, **more: Any) -> SeedView:
    of_view = {each: more.pop(each) for each in ("is_complete", "has_lanes") if each in more}
    return SeedView(
        PREFIX + name, Definition(PREFIX + "joined", COLUMNS, **more), windows, watermark_ms, **of_view
    )


_KEYS = (b"N14228", b"N24211", b"a/b", b"\x00\xff", "flüge".encode())
_NOTHING: list[Any] = [0, None, None, None, [None, 0], None]
VIEWS = (
    _view("puts", _days(*_KEYS), DAY_0_MS + 3 * DAY_MS, size_ms=DAY_MS, key="user", where="amount > 0"),
    _view("totals", {(key, 0, None): _states(2) for key in _KEYS} | {(b"nothing", 0, None): _NOTHING}),
    _view(
        "hops",
        {
            (b"N14228", DAY_0_MS + n * 3_600_000, DAY_0_MS + n * 3_600_000 + DAY_MS): _states(n)
            for n in range(4)
        },
        DAY_0_MS,
        size_ms=DAY_MS,
        every_ms=3_600_000,
        lateness_ms=5,
        ttl_ms=10**14,
        time="at",
    ),
    _view("visits", {(b"N14228", -5, 60_000): _states(1)}, 1, size_ms=60_000, is_session=True),
    _view("filling", _days(b"N14228"), 5, size_ms=DAY_MS, is_complete=False),
    _view("opened", {}, None, size_ms=DAY_MS, is_complete=False),
    _view("planned", {}, None, size_ms=DAY_MS, has_lanes=False),
)
