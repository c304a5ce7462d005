"""How topics and views begin alike: an epoch above all others, and a plan that is put on record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from keylane.errors import Fenced, StateUnavailable
from keylane.model.records import Layout
from keylane_spark.generations.ownership import Ownership
from keylane_spark.generations.plan import GenerationPlan, is_placed_otherwise, plan
from keylane_spark.lanes.topic_record import Lineage, TopicRecord

T = TypeVar("T")

MAX_ATTEMPTS = 5
RECREATED = "deleted and created again"


class StateStale(Exception):
    """States that serve and must be built again: whoever opens them knows why, and plans again."""


class StateAhead(Exception):
    """States that hold records which their log no longer has: name -> a sentence about it."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(reasons)
        self.reasons = reasons


@dataclass(frozen=True)
class StoredState(ABC):
    """The state of a topic or a view that is about to be opened.

    `name`: its name in Redis; `title`: its name in log lines. `topic_id`: Kafka's id of its topic. `oldest`:
    the oldest offset that the log has of each partition.
    """

    name: str
    title: str
    topic_id: str
    oldest: tuple[int, ...]

    @abstractmethod
    def wanted(self, kept: Layout | None) -> Layout:
        """The layout that the config asks for; `kept`: the one that readers go by."""

    @abstractmethod
    def why_unusable(self, kept: Layout | None, record: TopicRecord | None) -> str:
        """Why what is stored can't be used; empty where it can."""

    @abstractmethod
    def supersede(self, kept: Layout) -> None:
        """Mark the lanes of a layout that readers will no longer go by."""


@dataclass(frozen=True, slots=True)
class BegunState:
    """The recorded plan, and the partitions' offsets at which the state began.

    `kept`: the layout that readers used before, None without one. `lineages`: of the log that was read.
    `read_since_ms`: as of TopicRecord; 0: not known.
    """

    plan: GenerationPlan
    began: tuple[int, ...]
    kept: Layout | None
    lineages: tuple[Lineage, ...]
    read_since_ms: Mapping[int, int]


@dataclass(slots=True)
class _FreeGenerations:
    """Finds generations that nothing uses; `skipped` are those found in use on the way."""

    ownership: Ownership
    taken: Collection[int]
    skipped: list[int] = field(default_factory=list)

    def find(self, layout: Layout) -> Layout:
        found, used = self.ownership.free(layout, self.taken)
        self.skipped += used
        return found


def open_with_epoch(
    ownership: Ownership,
    names: Collection[str],
    open_: Callable[[int, Mapping[str, str]], T],
    *,
    has_begun: bool,
) -> T:
    """Take an epoch for these states and open them with it, up to five times.

    `open_` gets the epoch, and the states that must begin again, with the reasons. Where the lanes know a
    higher epoch (Fenced), the next attempt takes one above it; but a run that has begun was replaced, and
    Fenced is raised. States whose log was truncated begin again, and stale ones are planned again. Raises
    StateUnavailable after the last attempt.
    """
    above, unusable = 0, dict[str, str]()
    for _ in range(MAX_ATTEMPTS):
        epoch = ownership.take(names, above)
        try:
            return open_(epoch, unusable)
        except Fenced as fenced:
            if has_begun and fenced.newer_epoch > epoch:
                raise
            # A failover has lost the epoch counter: the lanes know better.
            above = max(above, fenced.newer_epoch)
        except StateAhead as ahead:
            unusable |= ahead.reasons
        except StateStale:
            pass
    # With an unstable node, or when replies get lost, a run may meet its own epoch.
    raise StateUnavailable(
        f"the lanes of {', '.join(names)} were taken by another writer {MAX_ATTEMPTS} times: "
        f"is the job running twice?"
    )


def begin_state(
    state: StoredState,
    ownership: Ownership,
    epoch: int,
    say: Callable[[str], None],
    unusable: str = "",
    stale: str = "",
) -> BegunState:
    """Plan what to do with a state, and store the plan in its record, with this run as its owner.

    `unusable`: why the stored state can't be used, "" if no reason is known yet. `stale`: why it is built
    again while it serves. Raises Fenced, WriterError.
    """
    name = state.name
    kept, record = ownership.known(name)
    unusable = state.why_unusable(kept, record) or unusable
    listed = record.remove if record else ()
    building = record.building if record else None
    taken = {*listed, *(layout.generation for layout in (kept, building) if layout)}
    generations = _FreeGenerations(ownership, taken)
    wanted = replace(state.wanted(kept), incarnation=epoch)
    began = _began(state, record)
    if kept and began != state.oldest and is_placed_otherwise(kept, wanted):
        # Better slots are no reason to lose what the log no longer has.
        wanted = replace(wanted, centered=kept.centered)
    planned = plan(wanted, kept, record, unusable=unusable, stale=stale, free=generations.find)
    if planned.why:
        say(f"{state.title}: {planned.why}")
    if record is None and generations.skipped:
        # The topic had a state, whose records are lost: it may have held what the log no longer has.
        began = (0,) * len(began)
    is_new = unusable or record is None or is_recreated(record, state.topic_id)
    lineages = record.lineages if record and not is_new else ()
    if kept and kept.generation != planned.serving.generation:
        # It holds another topic's records: readers that have its layout must ask for the new one.
        state.supersede(kept)
    new = TopicRecord(
        state.topic_id,
        began,
        ownership.owner(epoch),
        planned.building,
        lineages=lineages,
        serving=planned.serving,
        read_since_ms=_read_since_ms(planned, record, ownership.now_ms()),
    )
    new = new.removing([*listed, *planned.remove, *generations.skipped])
    ownership.change(name, new, layout=None if planned.serving == kept else planned.serving)
    return BegunState(planned, began, kept, lineages, new.read_since_ms)


def _read_since_ms(planned: GenerationPlan, record: TopicRecord | None, now_ms: int) -> dict[int, int]:
    """When the log began to be read for each generation; those that the plan begins, begin now."""
    known = record.read_since_ms if record else {}
    named = record.generations if record else set()
    used = {layout.generation for layout in (planned.serving, planned.building) if layout}
    return {each: known.get(each, 0) if each in named else now_ms for each in used}


def _began(state: StoredState, record: TopicRecord | None) -> tuple[int, ...]:
    """Where the state began in each partition, by a record of the same topic.

    A state that begins again keeps it: what retention has removed since then is missing from it. Partitions
    that were added since then began at 0.
    """
    if record is None or not record.began or is_recreated(record, state.topic_id):
        return state.oldest
    earlier = tuple(map(min, record.began, state.oldest))
    return earlier + (0,) * (len(state.oldest) - len(earlier))


def is_recreated(record: TopicRecord | None, topic_id: str) -> bool:
    """Whether the record is of an earlier topic of the same name."""
    return record is not None and record.topic_id != topic_id
