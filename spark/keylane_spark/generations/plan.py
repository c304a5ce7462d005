"""Decides which generation of a topic is served, which is built beside it, and which are removed.

A generation is all keys of one layout. Where the stored one can't be used, a new one is served at once, and
readers wait until it is complete. Any other change of the layout is built beside the served generation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from keylane.errors import BadConfig
from keylane.model.records import MAX_LANES, UNSTORED, Layout
from keylane_spark.config.topics import TopicConfig
from keylane_spark.lanes.topic_record import TopicRecord

SHOWN = (
    *("envelope", "headers", "insert_once", "key_fields", "key_format", "key_schema", "max_value_bytes"),
    *("transform", "ttl_ms", "value_format"),
)
"""Options that decide which records are read, and as what: with which keys, headers and values."""
_DEFINITIONS = {"view": "its definition has changed", "transform": "its transform has changed"}


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """What a start does with a topic. `remove`: generations to be removed. `why`: a sentence for the log."""

    serving: Layout
    building: Layout | None = None
    remove: frozenset[int] = frozenset()
    why: str = ""


def wanted_layout(topic: str, partition_count: int, config: TopicConfig) -> Layout:
    """Return the layout that the config describes; its generation is 0, not decided yet."""
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
    unusable: str = "",
    stale: str = "",
    free: Callable[[Layout], Layout],
) -> GenerationPlan:
    """Plan from the layout that readers use (`kept`) and the writer's record.

    `unusable`: why the stored state can't be used, "" if it can. `stale`: why it is built again from the log
    while it serves, "" if it need not be. The incarnation of `wanted` is that of a state that begins again,
    is stale, or shows other records (`SHOWN`), be it in place; a generation that is built for another layout
    of the same ones has that of the one that serves. While one of others is built, the one that serves shows
    its own as before: both would have the new incarnation. `free` gives a layout an unused generation. Raises
    BadConfig if the wanted layout has too many lanes and there is no other layout to keep.
    """
    built = record.building if record else None
    fits = wanted.partition_count * wanted.stripes <= MAX_LANES
    if kept is None or unusable:
        if not fits:
            raise BadConfig(_too_many(wanted))
        old = frozenset(layout.generation for layout in (kept, built) if layout)
        return GenerationPlan(free(wanted), None, old, unusable)
    serving = _with_unstored(kept, wanted)
    kept_as_it_is = "" if fits else f"{_too_many(wanted)}: it keeps its present layout"
    target = wanted if fits else replace(serving, generation=wanted.generation)
    # What is built in the layout that serves is built because that one was stale.
    is_rebuilt = bool(stale) or (built is not None and is_alike(built, serving))
    is_kept = is_alike(kept, target) and not is_rebuilt
    continued = built if built and not is_kept and is_alike(built, target) else None
    # No listener was sent what a stale state missed, and the log may not have it: they read all keys again.
    # The same holds where positions have other values, and an ETag of before must be of none of them.
    if continued:
        has_others = continued.incarnation != kept.incarnation
    else:
        has_others = is_rebuilt or _shown(serving) != _shown(target)
    serving = _served(kept, serving, wanted, has_others=has_others)
    if is_kept:
        return GenerationPlan(serving, None, frozenset({built.generation} if built else ()), kept_as_it_is)
    if continued:
        incarnation = continued.incarnation if has_others else serving.incarnation
        building = replace(_with_unstored(continued, wanted), incarnation=incarnation)
        return GenerationPlan(serving, building, why=f"continues to build generation {building.generation}")
    building = replace(free(target), incarnation=(wanted if has_others else serving).incarnation)
    reasons = ", ".join(filter(None, (kept_as_it_is, stale, difference(kept, target))))
    why = f"{reasons}: builds generation {building.generation} beside {kept.generation}"
    return GenerationPlan(serving, building, frozenset({built.generation} if built else ()), why)


def _served(kept: Layout, changed: Layout, wanted: Layout, *, has_others: bool) -> Layout:
    """Return what serves: `changed` in place. `has_others`: beside it other records are built."""
    if has_others:
        return replace(changed, options=replace(changed.options, **_shown(kept)))
    return changed if _shown(changed) == _shown(kept) else replace(changed, incarnation=wanted.incarnation)


def is_alike(one: Layout, other: Layout) -> bool:
    """Whether both layouts store the same data: they may differ in their numbers, and in UNSTORED options."""
    same = replace(_with_unstored(one, other), generation=other.generation, incarnation=other.incarnation)
    return same == other


def is_placed_otherwise(kept: Layout, wanted: Layout) -> bool:
    """Whether the layouts differ in nothing but the slots of their lanes."""
    return kept.centered != wanted.centered and is_alike(replace(kept, centered=wanted.centered), wanted)


def difference(kept: Layout, wanted: Layout) -> str:
    """Return the difference as a readable text: "partition_count 9 -> 18"."""
    unstored = _unstored(kept, wanted)
    before, after = _fields(kept, unstored), _fields(wanted, unstored)
    names = [name for name in after if before.get(name) != after[name]]
    changes = [
        change
        for name in names
        if name not in _DEFINITIONS
        for change in _changes(name, before.get(name), after[name])
    ]
    return ", ".join([*changes, *(words for name, words in _DEFINITIONS.items() if name in names)])


def _changes(name: str, before: object, after: object) -> Iterator[str]:
    """Yield what changes in one option; of pairs, as `fields` are, each one that comes, goes or changes."""
    if not isinstance(before, tuple) or not isinstance(after, tuple):
        yield f"{name} {before} -> {after}"
        return
    was, becomes = dict(before), dict(after)
    for each in sorted(was.keys() | becomes.keys()):
        if each not in was:
            yield f"{name} + {each} ({_text_of(becomes[each])})"
        elif each not in becomes:
            yield f"{name} - {each}"
        elif was[each] != becomes[each]:
            yield f"{name} {each} ({_text_of(was[each])}) -> ({_text_of(becomes[each])})"
    if was == becomes:
        yield f"{name} {', '.join(was)} -> {', '.join(becomes)}"


def _text_of(part: str | tuple[str, ...]) -> str:
    return part if isinstance(part, str) else ", ".join(part)


def _fields(layout: Layout, unstored: Collection[str]) -> dict[str, object]:
    options = layout.options
    return {
        "partition_count": layout.partition_count,
        "stripes": layout.stripes,
        "slot": "the middle of its share" if layout.centered else "the first of its share",
        "partitioner": layout.partitioner,
        "partition_by": layout.partition_by,
        **{name: getattr(options, name) for name in options.__slots__ if name not in unstored},
    }


def _unstored(layout: Layout, wanted: Layout) -> Collection[str]:
    """The options that may change while what is stored stays: indexes have fields as they were decoded."""
    formats = {layout.options.value_format, wanted.options.value_format}
    return UNSTORED - {"value_format"} if wanted.options.fields and "registry" in formats else UNSTORED


def _shown(layout: Layout) -> dict[str, Any]:
    return {name: getattr(layout.options, name) for name in SHOWN}


def _with_unstored(layout: Layout, wanted: Layout) -> Layout:
    unstored = {name: getattr(wanted.options, name) for name in _unstored(layout, wanted)}
    return replace(layout, options=replace(layout.options, **unstored))


def _too_many(wanted: Layout) -> str:
    return (
        f"topic {wanted.topic!r}: {wanted.partition_count} partitions x {wanted.stripes} stripes "
        f"are more than {MAX_LANES} lanes"
    )
