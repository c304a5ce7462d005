"""Which generation of a topic is served, which is built beside it, and which are of no more use.

A generation is one layout's keys. One that holds another topic's records, or none, is begun anew and named
at once: readers wait for it. Any other change of the layout is built beside the generation that is served.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from keylane.errors import WriterError
from keylane.model.records import MAX_LANES, UNSTORED, Layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane_spark.adapters.topic_record import TopicRecord
    from keylane_spark.config.topics import TopicConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """What a start does with a topic. `remove`: generations to be removed; `why`: for people, if anything."""

    serving: Layout
    building: Layout | None = None
    remove: frozenset[int] = frozenset()
    why: str = ""


def wanted_layout(topic: str, partition_count: int, config: TopicConfig) -> Layout:
    """The layout that the config asks for, its generation still open."""
    return Layout(
        topic,
        partition_count,
        config.stripes,
        config.partitioner,
        0,
        config.options,
        config.partition_by,
    )


def plan(
    wanted: Layout,
    kept: Layout | None,
    record: TopicRecord | None,
    *,
    anew: str = "",
    free: Callable[[Layout], Layout],
) -> Plan:
    """Decide by the layout that readers go by (`kept`) and the writer's record.

    `anew`: why what is there can't be used, if so. `free` gives the layout a generation that nothing uses.
    Raises WriterError for more lanes than there are slots, where no layout is there to go on with.
    """
    built = record.building if record else None
    fits = wanted.partition_count * wanted.stripes <= MAX_LANES
    if kept is None or anew:
        if not fits:
            raise WriterError(_too_many(wanted))
        old = frozenset(each.generation for each in (kept, built) if each)
        return Plan(free(wanted), None, old, anew)
    serving = _with_unstored(kept, wanted)
    if not fits or is_alike(kept, wanted):
        why = "" if fits else f"{_too_many(wanted)}: it keeps the layout that it has"
        return Plan(serving, None, frozenset({built.generation} if built else ()), why)
    if built and is_alike(built, wanted):
        return Plan(
            serving, _with_unstored(built, wanted), why=f"goes on building generation {built.generation}"
        )
    building = free(wanted)
    why = f"{difference(kept, wanted)}: builds generation {building.generation} beside {kept.generation}"
    return Plan(serving, building, frozenset({built.generation} if built else ()), why)


def is_alike(one: Layout, other: Layout) -> bool:
    """Whether records lie alike in both: what isn't stored and the generation's number aside."""
    return replace(_with_unstored(one, other), generation=other.generation) == other


def difference(kept: Layout, wanted: Layout) -> str:
    """What differs, for people: "partition_count 9 -> 18"."""
    before, after = _fields(kept), _fields(wanted)
    names = [name for name in after if before.get(name) != after[name]]
    told = [f"{name} {before.get(name)} -> {after[name]}" for name in names if name != "view"]
    return ", ".join([*told, *(["it is defined otherwise"] if "view" in names else [])])


def _fields(layout: Layout) -> dict[str, object]:
    options = layout.options
    return {
        "partition_count": layout.partition_count,
        "stripes": layout.stripes,
        "partitioner": layout.partitioner,
        "partition_by": layout.partition_by,
        **{name: getattr(options, name) for name in options.__slots__ if name not in UNSTORED},
    }


def _with_unstored(layout: Layout, wanted: Layout) -> Layout:
    unstored = {name: getattr(wanted.options, name) for name in UNSTORED}
    return replace(layout, options=replace(layout.options, **unstored))


def _too_many(wanted: Layout) -> str:
    return (
        f"topic {wanted.topic!r}: {wanted.partition_count} partitions x {wanted.stripes} stripes "
        f"are more than {MAX_LANES} lanes"
    )
