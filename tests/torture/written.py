"""Holds the answers to a schedule's writes against the log. Each fault is a sentence.

A record that was written is in the log once, at its position, and behind those of its key that were written
before. One that was refused is not there. One that is uncertain is there at most once for each time that it
was sent; in a queue that took it without an answer, for each of its deliveries. One that was queued is there
at least once, or among the dead letters.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.torture.results import OF_SERVER

from keylane.model.records import Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.torture.oracle import Log, Logged
    from tests.torture.results import Kind, Result, Sent

_ID = "keylane-id"
_TRACE = "traceparent"


@dataclass(frozen=True, slots=True)
class Queued:
    """What became of the queue: deliveries, and the reasons of dead letters, by ids of records."""

    deliveries: Mapping[str, int]
    dead: Mapping[str, str]


def check_written(sent: Sequence[Sent], log: Log, queued: Queued) -> Iterator[str]:
    """Check every record that a client has sent; yields a sentence for each fault."""
    copies = _Copies(log)
    expired = _expired_in_server(sent)
    for each in sent:
        more = int(each.client in OF_SERVER and any(map(each.overlaps, expired)))
        for fault in _check(each, copies.of(each), queued, more):
            yield f"client {each.client}, {each.topic}/{each.key.decode()}, {_show(each)}: {fault}"
    yield from _check_order(sent, copies)
    yield from _check_superseded(sent)


class _Copies:
    """The records of the log by the traces that clients gave them."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._found: dict[tuple[str, bytes], dict[str, list[Logged]]] = {}

    def of(self, sent: Sent) -> list[Logged]:
        """The copies of a record, by partition and offset."""
        of_key = self._found.get((sent.topic, sent.key))
        if of_key is None:
            of_key = self._found[sent.topic, sent.key] = defaultdict(list)
            for _, records in sorted(self._log.of(sent.topic, sent.key).records.items()):
                for record in records:
                    of_key[_trace(record)].append(record)
        return of_key.get(sent.trace, [])


def _trace(record: Logged) -> str:
    parent = dict(record.headers).get(_TRACE) or b"-"
    return parent.decode().split("-")[1]


def _expired_in_server(sent: Sequence[Sent]) -> list[Result]:
    """Results of records that expired in the server's producer.

    Its client may then send the others of the batch again, under another producer id: see docs/http/write.md.
    """
    of_server = (result for each in sent if each.client in OF_SERVER for result in each.results)
    return [result for result in of_server if result.kind == "uncertain"]


def _check(sent: Sent, copies: Sequence[Logged], queued: Queued, more: int) -> Iterator[str]:
    """`more`: how many copies more than its results say are excused."""
    yield from _check_results(sent, copies)
    ids = {result.id for result in sent.results if result.kind == "queued"}
    unanswered = {_id(copy) for copy in copies} - ids - {""}
    again = sum(max(queued.deliveries[id_] - 1, 0) for id_ in unanswered)
    most = (
        sent.count("written") + sent.count("uncertain") + sum(queued.deliveries[id_] for id_ in ids) + again
    )
    least = sent.count("written") + len(ids - queued.dead.keys())
    if not least <= len(copies) <= most + more:
        yield f"it is in the log {len(copies)} times, at {_places(copies)}, and not {least} to {most} times"
    if any(copy.value != sent.value for copy in copies):
        yield f"the log has another value: {copies[0].value!r:.80}"
    if ids:
        yield from _check_queued(sent, copies, ids, queued)


def _check_results(sent: Sent, copies: Sequence[Logged]) -> Iterator[str]:
    at = [Position(copy.partition, copy.offset) for copy in copies]
    positions = Counter(result.position for result in sent.results if result.position)
    for position, count in positions.items():
        if position not in at or count > 1:
            yield f"{position} was answered {count} times, and the log has it at {_places(copies)}"
    for result in sent.results:
        if sent.is_bad and result.kind == "written":
            yield "it was written, and Kafka refuses such records"
        if not sent.is_bad and result.kind == "refused" and not (result.is_retriable or result.is_superseded):
            yield f"it was refused for good: {result.detail}"


def _check_queued(sent: Sent, copies: Sequence[Logged], ids: set[str], queued: Queued) -> Iterator[str]:
    own = {_id(copy) for copy in copies}
    if len(own - ids) > sent.count("uncertain"):
        yield f"the log has it with the ids {sorted(own)}"
    dead = [queued.dead[id_] for id_ in sorted(ids & queued.dead.keys())]
    if dead and not sent.is_bad:
        yield f"it is a dead letter: {dead}"
    if sent.is_bad and not dead:
        yield "it is no dead letter, and Kafka refuses such records"


def _check_order(sent: Sequence[Sent], copies: _Copies) -> Iterator[str]:
    """Of a key, what was certainly written later lies behind. The last copy counts: drain may write again."""
    lasts: dict[tuple[str, bytes], tuple[Sent, Logged]] = {}
    for each in sent:
        found = copies.of(each)
        if not each.is_certain or not found:
            continue
        at = {
            (result.position.partition, result.position.offset) for result in each.results if result.position
        }
        own = [copy for copy in found if (copy.partition, copy.offset) in at] or found
        last = max(own, key=lambda copy: copy.offset)
        before = lasts.get((each.topic, each.key))
        lasts[each.topic, each.key] = each, last
        if before is not None and before[1].offset > last.offset:
            yield (
                f"client {each.client}, {each.topic}/{each.key.decode()}: {_show(before[0])} lies at "
                f"{before[1].offset}, behind {_show(each)} at {last.offset}, which was sent later"
            )


def _check_superseded(sent: Sequence[Sent]) -> Iterator[str]:
    """Where a record is superseded, a newer one of its key was written by the same request."""
    newest: dict[tuple[str, bytes, int], int] = {}
    for number, each in enumerate(sent):
        if each.is_certain:
            newest[each.topic, each.key, each.request] = number
    for number, each in enumerate(sent):
        if each.results[-1].is_superseded and newest.get((each.topic, each.key, each.request), -1) <= number:
            yield f"client {each.client}, {each.topic}/{each.key.decode()}: {_show(each)} by nothing"


def _places(copies: Sequence[Logged]) -> str:
    return ", ".join(f"{copy.partition}:{copy.offset}" for copy in copies) or "no place"


def _id(copy: Logged) -> str:
    return (dict(copy.headers).get(_ID) or b"").decode()


def _show(sent: Sent) -> str:
    results = ", ".join(_show_result(result.kind, result.detail) for result in sent.results)
    return f"record {int(sent.trace, 16) & 0xFFFFF:x} ({results})"


def _show_result(kind: Kind, detail: str) -> str:
    return f"{kind}: {detail[:120]}" if detail else kind
