"""What became of each record that a client wrote through the product: by the answers, and by the log."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from keylane.model.records import Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.support.replies import Reply
    from tests.torture.oracle import Log, Logged


Kind = Literal["written", "queued", "refused", "uncertain"]
OF_SERVER = ("server-a", "server-b")
"""The clients of the standing server, which share its producer."""
_EXPIRES_LATE_S = 2.0
"""librdkafka looks once a second for records whose time is over: a request's may expire after its answer."""
_UNKNOWN = frozenset({500, 504})
"""Statuses after which the records may have been written."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a record. `position`: of one that was written; `id`: of one that was queued.

    `detail`: what the answer says of another. `is_retriable`: as the answer says, it may be sent again.
    """

    kind: Kind
    position: Position | None = None
    id: str = ""
    detail: str = ""
    is_retriable: bool = False
    is_superseded: bool = False
    began_s: float = 0.0
    ended_s: float = 0.0
    """When the request was sent and answered (monotonic seconds)."""

    def overlaps(self, other: Result) -> bool:
        """Whether both requests were in progress at a time, or the other had ended shortly before."""
        return self.began_s <= other.ended_s + _EXPIRES_LATE_S and other.began_s <= self.ended_s


@dataclass(slots=True)
class Sent:
    """A record and the result of each time that it was sent. `trace` is no other record's.

    `request`: the number of its request; a client sends them one after the other. `is_bad`: Kafka refuses it.
    """

    client: str
    topic: str
    key: bytes
    value: bytes | None
    trace: str
    is_bad: bool = False
    timestamp_ms: int | None = None
    request: int = 0
    results: list[Result] = field(default_factory=list)

    def count(self, kind: Kind) -> int:
        """How many times it was sent with this result."""
        return sum(result.kind == kind for result in self.results)

    @property
    def is_certain(self) -> bool:
        """Whether the client knows that the record was written, or that it will be."""
        return any(result.kind in {"written", "queued"} for result in self.results)

    def overlaps(self, other: Result) -> bool:
        """Whether it was being sent while another request was in progress, or shortly afterwards."""
        return any(result.overlaps(other) for result in self.results)


def results_of(reply: Reply | None, count: int) -> list[Result]:
    """The result of each record of a request."""
    if reply is None:
        return [Result("uncertain", detail="no answer")] * count
    document = reply.document
    if "offsets" in document:
        return [_of_entry(entry) for entry in document["offsets"]]
    if "positions" in document:
        return _of_push(document)
    if reply.status in _UNKNOWN:
        return [Result("uncertain", detail=f"{reply.status} {document}")] * count
    return [_of_entry(document)] * count


def _of_push(document: dict[str, Any]) -> list[Result]:
    """The results of a push: positions, ids of what was queued, and all entries where one failed."""
    positions, ids = document["positions"], iter(document.get("queued", ()))
    results = []
    for position, entry in zip(positions, document["errors"] or [{}] * len(positions), strict=True):
        if position is not None:
            results.append(Result("written", Position.parse(position)))
        elif entry.get("error"):
            results.append(_of_entry({**entry, "status": None, "error": entry["message"]}))
        else:
            results.append(Result("queued", id=next(ids)))
    return results


def _of_entry(entry: dict[str, Any]) -> Result:
    """The result of one record, or of a request as a whole."""
    if entry.get("offset") is not None:
        return Result("written", Position(entry["partition"], entry["offset"]))
    if entry.get("status") == "queued":
        return Result("queued", id=entry["id"])
    kind: Kind = "uncertain" if entry.get("uncertain") else "refused"
    detail = f"{entry.get('code') or entry.get('title')}: {entry.get('error') or entry.get('detail')}"
    return Result(
        kind,
        detail=detail,
        is_retriable=bool(entry.get("retriable", entry.get("status") == 503)),
        is_superseded=bool(entry.get("superseded")),
    )


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
