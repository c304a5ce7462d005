"""The steps that topics and views begin with alike: an epoch above all others, and a plan put on record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from keylane.errors import Fenced, StateUnavailable
from keylane_spark.adapters.topic_record import TopicRecord
from keylane_spark.generations.plan import plan

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from keylane.model.records import Layout
    from keylane_spark.generations.ownership import Ownership
    from keylane_spark.generations.plan import Plan

T = TypeVar("T")

TRIES = 5
RECREATED = "deleted and created anew"


class Gone(Exception):
    """States that are ahead of their log: name -> a sentence about it."""

    def __init__(self, sentences: Mapping[str, str]) -> None:
        super().__init__(sentences)
        self.sentences = sentences


@dataclass(frozen=True, slots=True)
class Subject:
    """A topic's or a view's state that is to be begun.

    `name`: as its state has it; `title`: for people. `oldest`: the log's first offset of each partition.
    `wanted`: the layout that the config asks for, by the one that readers go by. `unusable`: why what is
    there can't be gone on with, if so. `supersede` marks the lanes of a layout that is not named any more.
    """

    name: str
    title: str
    topic_id: str
    oldest: tuple[int, ...]
    wanted: Callable[[Layout | None], Layout]
    unusable: Callable[[Layout | None, TopicRecord | None], str]
    supersede: Callable[[Layout], None]


@dataclass(frozen=True, slots=True)
class Begun:
    """What is on record now: the plan, and where the state began; `kept` is the layout named before."""

    plan: Plan
    began: tuple[int, ...]
    kept: Layout | None


def with_epoch(
    ownership: Ownership,
    names: Collection[str],
    attempt: Callable[[int, Mapping[str, str]], T],
    *,
    has_begun: bool,
) -> T:
    """Take an epoch for these states and give the `attempt` that is made with it; some are repeated.

    The attempt gets the epoch, and the states that turned out to be unusable (Gone), with why. Where the
    lanes know a higher epoch (Fenced), the next one is above it; a run that has begun is then replaced:
    Fenced. Raises StateUnavailable after five attempts.
    """
    above, anew = 0, dict[str, str]()
    for _ in range(TRIES):
        epoch = ownership.take(names, above)
        try:
            return attempt(epoch, anew)
        except Fenced as fenced:
            if has_begun and fenced.newer_epoch > epoch:
                raise
            # The counter was lost with a failover: the lanes know better.
            above = max(above, fenced.newer_epoch)
        except Gone as gone:
            anew |= gone.sentences
    # A node that comes and goes makes us meet our own epoch, as a reply that was lost does.
    raise StateUnavailable(
        f"the lanes of {', '.join(names)} were taken {TRIES} times meanwhile: is the job running twice?"
    )


def put_on_record(
    subject: Subject, ownership: Ownership, epoch: int, say: Callable[[str], None], anew: str = ""
) -> Begun:
    """Plan what to do with a state, and put it on record with this run as its owner.

    `anew`: why what is there can't be used, where that is known already. Raises Fenced, WriterError.
    """
    name = subject.name
    kept, record = ownership.layout(name), ownership.record(name)
    last_layout, last_record = ownership.remembered(name)
    anew = subject.unusable(kept, record) or anew
    listed = record.remove if record else ()
    building = record.building if record else None
    taken = {*listed, *(each.generation for each in (kept, last_layout, building) if each)}
    left: list[int] = []

    def free(layout: Layout) -> Layout:
        found, used = ownership.free(layout, taken)
        left.extend(used)
        return found

    planned = plan(subject.wanted(kept), kept, record, anew=anew, free=free)
    if planned.why:
        say(f"{subject.title}: {planned.why}")
    known = record or last_record
    began = subject.oldest
    if known and known.topic_id == subject.topic_id and not anew:
        began = known.began + began[len(known.began) :]
    if kept and kept.generation != planned.serving.generation:
        # It holds another topic's records: readers that have the old layout must ask for the new one.
        subject.supersede(kept)
    new = TopicRecord(subject.topic_id, began, ownership.owner(epoch), planned.building)
    ownership.change(name, layout=planned.serving, record=new.removing([*listed, *planned.remove, *left]))
    return Begun(planned, began, kept)


def is_recreated(record: TopicRecord | None, topic_id: str) -> bool:
    """Whether the record is of a topic of the same name that is no more."""
    return record is not None and record.topic_id != topic_id
