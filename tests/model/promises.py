"""What readers may rely on, checked in a state of the world by the application's own reads."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.model.finds import check_entries
from tests.model.job import Broken
from tests.model.log import TOPIC
from tests.model.shards import kind_of
from tests.support.compressed import value_of

from keylane import routing
from keylane.errors import LaneBuilding, UnknownTopic
from keylane.ports import Clock
from keylane.query.latest import read_latest
from keylane.query.store import ReadTerms, Store
from keylane.state import codec, redis_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.model.log import Logged
    from tests.model.shards import Contents
    from tests.model.world import World

    from keylane.model.records import Answer, Layout
    from keylane.ports import Call, Deadline

_TERMS = ReadTerms(timeout_ms=60_000)
_CLOCK = Clock()


class Shown(NamedTuple):
    """The newest that a reader has seen of a key: a record's number, and whether that is a record's value.

    Of a key that is absent it is the least tombstone that can be the reason, -1 for none.
    """

    number: int
    is_set: bool


class Seen(NamedTuple):
    """What readers know. `layouts`: those that they may still go by. `strays`: generations whose strays the
    job knows. `shown`: what they were shown of each key; empty where they were shown nothing that counts."""

    layouts: tuple[Layout, ...] = ()
    strays: frozenset[int] = frozenset()
    shown: tuple[tuple[bytes, Shown], ...] = ()


NOTHING_SEEN = Seen()


@dataclass(slots=True)
class _Reader:
    """A reader that goes by a layout until its lanes say that it is stale: state and layouts at once."""

    contents: Contents
    layout: Layout
    run: Callable[[Sequence[Call], Deadline], list[Any]] | None = None

    @property
    def store(self) -> Any:
        return Store(self, self, _CLOCK)  # type: ignore[arg-type]

    def read(self, _slot: int, keys: Sequence[bytes], *_: Any, **__: Any) -> list[bytes | None]:
        return [self.contents.get(key, (None, False))[0] for key in keys]

    def get(self, *_: Any) -> Layout:
        return self.layout

    def refresh(self, topic: str, _: Deadline) -> Layout:
        layout = current_layout(self.contents)
        if layout is None:
            raise UnknownTopic(topic)
        return layout


def current_layout(contents: Contents) -> Layout | None:
    """The layout that readers are directed to; None without one."""
    for tag in (redis_keys.RECORD_TAG, *redis_keys.COPY_TAGS):
        data, _ = contents.get(redis_keys.layout_key(TOPIC, tag), (None, False))
        if data is not None:
            return codec.decode_layout(data)
    return None


def check(world: World) -> Seen:
    """Raise Broken where an answer lacks what it claims, where a key goes back in time, where a settled state
    is not the fold, where an index is not that of the live keys, or where a row is found, or not, by what its
    record does not say. Returns what readers know then."""
    contents = world.contents()
    _check_indexes(contents)
    current = current_layout(contents)
    layouts = tuple(dict.fromkeys((*world.seen.layouts, *([current] if current else []))))
    strays = world.seen.strays
    if not world.is_taken_back:
        strays |= {each.generation for each in layouts if _knows_strays(world, each)}
    shown = dict(world.seen.shown)
    is_settled = world.is_settled
    keys = list(dict.fromkeys(record.key for record in world.log))
    if world.topic.fields:
        check_entries(contents, overdue(contents), are_kept=world.topic.ttl is not None)
        for each in layouts:
            world.finds.check(_Reader(contents, each, world.inspector.run).store, each, contents, keys)
    for key in keys:
        answers = [answer for each in layouts if (answer := _answer(contents, each, key))]
        for answer in answers:
            knows = answer.layout.generation in world.seen.strays or not _strays(world, answer.layout)
            settled = answer.layout == current and is_settled
            _Check(world, key, answer, settled=settled, knows_strays=knows).check()
        after = [
            _advanced(world, key, shown.get(key), answer)
            for answer in answers
            if not answer.watermark.incomplete and not may_be_back(world, key, answer)
        ]
        if len(after) == len(answers) and after:
            shown[key] = max(after)
            for answer in answers:  # readers with another layout show the same
                _advanced(world, key, shown[key], answer)
        elif answers:
            shown.pop(key, None)
    return Seen(layouts, strays, tuple(sorted(shown.items())))


def _answer(contents: Contents, layout: Layout, key: bytes) -> Answer | None:
    """What a reader with this layout gets; None where it has to wait."""
    try:
        return read_latest(_Reader(contents, layout).store, TOPIC, key, _TERMS)
    except (LaneBuilding, UnknownTopic):
        return None


def _strays(world: World, layout: Layout) -> list[Logged]:
    """The records that lie in another partition than their key's lane."""
    return [
        each
        for each in world.log
        if routing.partition_for(each.key, layout.partition_count) != each.partition
    ]


def _knows_strays(world: World, layout: Layout) -> bool:
    """Whether all lanes are complete as of a time when the log had strays that it still has.

    Of one that retention removes unread nobody knows, if it is the first.
    """
    found = [each for each in _strays(world, layout) if world.is_there(each)]
    marks = [world.watermark(number, layout) for number in range(layout.partition_count)]
    return bool(found) and all(mark and mark.complete_as_of_ms >= found[0].acked for mark in marks)


@dataclass(frozen=True, slots=True)
class _Check:
    """One answer about a key."""

    world: World
    key: bytes
    answer: Answer
    settled: bool
    knows_strays: bool

    def check(self) -> None:
        own = [record for record in self.world.log if record.key == self.key]
        claimed = [each for each in own if each.acked <= self.answer.watermark.complete_as_of_ms]
        # Before a topic's first stray was read nobody waits for other partitions: no promise covers that, nor
        # what retention removes of it.
        is_whole = all(map(self.world.is_there, own))
        counts = claimed and (self.knows_strays or (self.settled and is_whole))
        stored = _stored(own, self.answer)
        if self.answer.watermark.incomplete or not counts:
            return
        newest = claimed[-1]
        if newest.number < self.world.expired:
            return  # it may be there again, and so may what was older: only Redis knows of the time
        later = own[own.index(newest) + 1 :]
        if stored is not None:
            fine = stored.number >= newest.number and stored.value is not None
        else:
            fine = newest.value is None or any(record.value is None for record in later)
        if not fine and not may_be_back(self.world, self.key, self.answer):
            when = "after everything was repaired" if self.settled else "a lane claims to be complete, and"
            expected = "absent" if newest.value is None else f"record {newest.number}"
            found = "absent" if stored is None else f"record {stored.number}"
            raise Broken(f"{when} the key is {found}, not {expected}")


def may_be_back(world: World, key: bytes, answer: Answer) -> bool:
    """Whether the record may be back because compaction has removed a tombstone in another partition."""
    own = [record for record in world.log if record.key == key]
    stored = _stored(own, answer)
    return stored is not None and any(
        each.value is None
        and each.number > stored.number
        and each.partition != stored.partition
        and not world.is_there(each)
        for each in own
    )


def _stored(own: Sequence[Logged], answer: Answer) -> Logged | None:
    found = answer.record
    if found is None:
        return None
    return next(each for each in own if (each.partition, each.offset) == (found.partition, found.offset))


def _advanced(world: World, key: bytes, before: Shown | None, answer: Answer) -> Shown:
    """What a reader has seen with this answer. Raises Broken if that is older than what it saw before."""
    own = [record for record in world.log if record.key == key]
    stored = _stored(own, answer)
    known = before or Shown(-1, is_set=False)
    if stored is not None:
        if stored.number < known.number:
            raise Broken(f"a reader saw what record {known.number} left, and then record {stored.number}")
        return Shown(stored.number, is_set=True)
    if not known.is_set:
        return known
    deleted = [each.number for each in own if each.value is None and each.number > known.number]
    if not deleted:
        raise Broken(f"a reader saw record {known.number}, and then that the key is absent")
    return Shown(deleted[0], is_set=False)


def _check_indexes(contents: Contents) -> None:
    """Each lane's index has the keys that are there, and others that have expired since the last call."""
    kept: dict[tuple[bytes, int], list[bytes]] = defaultdict(list)
    live: dict[tuple[bytes, int], set[bytes]] = defaultdict(set)
    has_index = set()
    current = current_layout(contents)
    for key, (value, _) in contents.items():
        found = kind_of(key)
        if found is None:
            continue
        generation, kind, name = found
        place = key[: key.index(b"}")], generation
        if kind == b"i":
            kept[place] += value
        elif kind == b"v" and codec.decode_record(name, value, 0, value_of) is not None:
            live[place].add(name)
        has_index |= {place} if current and current.options.index else set()
    late = overdue(contents)
    for place in has_index:
        if sorted(key for key in kept[place] if (*place, key) not in late) != sorted(live[place]):
            raise Broken(f"an index has the keys {sorted(kept[place])}, and its lane {sorted(live[place])}")


def overdue(contents: Contents) -> set[tuple[bytes, int, bytes]]:
    """Tag, generation and key of what has expired, and is in indexes until the next call."""
    found, now_ms = set(), time.time() * 1000
    for key, (value, _) in contents.items():
        generation, kind, _ = kind_of(key) or (0, b"", b"")
        if kind == b"x":
            names = zip(value[::2], value[1::2], strict=True)
            found |= {(key[: key.index(b"}")], generation, name) for name, at in names if float(at) < now_ms}
    return found


def check_cleaned(world: World) -> None:
    """Raise Broken where the lanes that readers are directed to still have what has expired in indexes."""
    contents = world.contents()
    current = current_layout(contents)
    if left := [each for each in overdue(contents) if current and each[1] == current.generation]:
        raise Broken(f"indexes still have {left}, which have expired")


@contextlib.contextmanager
def old_writer(world: World, epoch: int) -> Iterator[None]:
    """Raise Broken where a writer of this epoch changes what a newer one has opened."""
    before = world.contents()
    owned = {_place(key) for key, (value, _) in before.items() if _is_newer(key, value, epoch)}
    yield
    after = world.contents()
    for key in before.keys() | after.keys():
        if _place(key) in owned and before.get(key) != after.get(key):
            raise Broken(f"a writer that was replaced has changed {key!r}")


def _place(key: bytes) -> tuple[bytes, int] | None:
    found = kind_of(key)
    return (key[: key.index(b"}")], found[0]) if found else (key[: key.index(b"}")], 0)


def _is_newer(key: bytes, value: Any, epoch: int) -> bool:
    """Whether the key says that a newer writer has its slot's lanes of a generation, or a topic's records."""
    found = kind_of(key)
    if found:
        return found[1] == b"e" and int(value) > epoch
    return key.startswith(b"{keylane") and b":epoch:" in key and int(value.partition(b" ")[0]) > epoch
