"""The new records of a topic, by polls of its partitions.

Each round asks which partitions there are, then reads each from where it stopped. A partition that appears
later is read from its first record. A round without records is followed by a pause.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane_client.encoding import Moment, encode_moment, segment
from keylane_client.errors import NotFound
from keylane_client.parsing import expect_keylane, parse_document, parse_log_record
from keylane_client.wire import ApiRequest, Conversation, Step, Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane_client.answers import LogRecord
    from keylane_client.context import TopicScope

EARLIEST, LATEST = "earliest", "latest"
_OUT_OF_RANGE = "offset-out-of-range"
_PAGE_RECORDS = 1000


@dataclass(frozen=True, slots=True)
class _Progress:
    """The next offset of each partition; `is_idle`: the round before brought nothing."""

    next_offsets: Mapping[int, int]
    is_idle: bool


def tail_topic(topic: TopicScope, start: Moment, pause_s: float) -> Stream[LogRecord]:
    """Read the records from `start` on, then new ones as they arrive."""

    def step(progress: _Progress) -> Conversation[Step[LogRecord]]:
        offsets: dict[int, int] = dict(progress.next_offsets)
        if progress is _START:
            for number in (yield from _partitions(topic, 0)):
                offsets[number] = yield from _first_offset(topic, number, start)
            return Step([], _Progress(offsets, is_idle=False))
        pages = []
        for number in (yield from _partitions(topic, pause_s if progress.is_idle else 0)):
            page, offsets[number] = yield from _read_page(topic, number, offsets.get(number))
            pages.append(page)
        # Merged, not sorted: a partition keeps its order, whatever its timestamps say.
        records = list(heapq.merge(*pages, key=_timestamp_ms))
        return Step(records, _Progress(offsets, is_idle=not records))

    return Stream(step, _START)


_START = _Progress({}, is_idle=False)


def _partitions(topic: TopicScope, delay_s: float) -> Conversation[list[int]]:
    response = yield ApiRequest("GET", f"/topics/{segment(topic.name)}/partitions", delay_s=delay_s)
    with expect_keylane():
        return [each["partition"] for each in parse_document(response)["partitions"]]


def _first_offset(topic: TopicScope, partition: int, start: Moment) -> Conversation[int]:
    """Return the offset of the first record at `start`, else where the next record will be."""
    # The end is asked first: a record that arrives between two requests is then not left out.
    end = yield from _offset_at(topic, partition, LATEST)
    if start == LATEST:
        return end or 0
    found = yield from _offset_at(topic, partition, start)
    return (end or 0) if found is None else found


def _offset_at(topic: TopicScope, partition: int, at: Moment) -> Conversation[int | None]:
    path = f"/topics/{segment(topic.name)}/partitions/{partition}/offsets"
    response = yield ApiRequest("GET", path, {"at": encode_moment(at)})
    with expect_keylane():
        found: int | None = parse_document(response)["offset"]
        return found


def _read_page(
    topic: TopicScope, partition: int, offset: int | None
) -> Conversation[tuple[list[LogRecord], int]]:
    """Return the records from the offset on, and the next offset. What retention removed is left out."""
    path = f"/topics/{segment(topic.name)}/partitions/{partition}/records"
    query = {"offset": EARLIEST if offset is None else str(offset), "limit": str(_PAGE_RECORDS)}
    try:
        response = yield ApiRequest("GET", path, query)
    except NotFound as error:
        if error.type != _OUT_OF_RANGE:
            raise
        with expect_keylane():
            return [], error.problem["low"]
    page = parse_document(response, topic.context.loads)
    with expect_keylane():
        return [parse_log_record(each, topic.name) for each in page["records"]], page["next_offset"]


def _timestamp_ms(record: LogRecord) -> int:
    # Records of before Kafka 0.10 have none.
    return record.timestamp_ms or 0
