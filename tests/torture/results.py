"""What became of each record that a client wrote through the product, as the answers say it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from keylane.model.records import Position

if TYPE_CHECKING:
    from tests.support.replies import Reply

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
