"""What tells one state of the model's world from another."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.model.world import World


def fingerprint(world: World, *, last_calls: int) -> str:
    """What decides all that may follow: times as the records that were acknowledged by then.

    `last_calls`: how many calls of a lane a failover may still take back.
    """
    lanes = []
    for number, lane in enumerate(world.lanes):
        content, mark = world.contents()[number].copy(), world.watermark(number)
        if mark is not None:
            own = world.query is not None and mark.epoch == world.query._writer.epoch
            level = _level(world, mark.complete_as_of_ms)
            content[b"w:%d.0" % number] = mark._replace(epoch=int(own), complete_as_of_ms=level)
            content[b"since"] = mark.complete_as_of_ms >= world.changed
        calls = world.cluster.calls.get(lane.watermark_key, ())
        last = [_without_time(call) for call in calls[max(0, len(calls) - last_calls) :]]
        lanes.append((sorted(content.items(), key=repr), last))
    zombie = None if world.zombie is None else sorted(world.zombie.positions.items())
    return repr((lanes, _job(world), zombie, len(world.log), world.knows_strays))


def _job(world: World) -> Any:
    if world.query is None:
        return None
    plain = (dict, set, frozenset, list, tuple, int, str)
    sights = world.query._freshness._sights
    opening = world.query._opening
    return (
        [(name, _ordered(v)) for name, v in sorted(vars(world.query).items()) if isinstance(v, plain)],
        [(f.name, _ordered(getattr(opening, f.name))) for f in fields(opening) if f.name != "writer"],
        [(p, sorted({(_level(world, at), end) for at, end in seen})) for p, seen in sorted(sights.items())],
    )


def _level(world: World, time: int) -> int:
    return sum(record.acked <= time for record in world.log)


def _ordered(value: Any) -> Any:
    """The same whatever the order in which sets and dicts were filled."""
    if isinstance(value, dict):
        return sorted(((key, _ordered(each)) for key, each in value.items()), key=repr)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if is_dataclass(value) and not isinstance(value, type):
        return [(f.name, _ordered(getattr(value, f.name))) for f in fields(value)]
    return value


def _without_time(call: bytes) -> bytes:
    """A call without epoch and claim, which differ from path to path."""
    words = call.split(b"\r\n")
    if len(words) < 12:
        return call
    words[10] = b""
    if b"apply" in words[4] or b"whole" in words[4]:
        words[18] = b""
    return b" ".join(words)
