"""Requests that write or delete one key, and their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.errors import BadRequest

if TYPE_CHECKING:
    from keylane.model.records import Position
import json
from typing import TYPE_CHECKING

from keylane.api.preferences import ASYNC_APPLIED
from keylane.api.rendering import JSON
from keylane.api.response import Response
from keylane.model.records import Position

if TYPE_CHECKING:
    from keylane.model.records import Queued
from keylane.api.event import Event, headers_of, key_of, query_of, topic_of

_CONDITIONS = {"if-match": "If-Match", "if-none-match": "If-None-Match"}


def write_request(event: Event, topic: str, key: str) -> tuple[str, bytes]:
    """Parse topic and key of a PUT or DELETE, as `read_request` does.

    Raises BadRequest for a condition too: whether a key is there is in the state, which lags behind what is
    written, so no write can promise to depend on it.
    """
    for name in headers_of(event).keys() & _CONDITIONS.keys():
        raise BadRequest(
            f"writes take no {_CONDITIONS[name]}: a topic with insert_once keeps each key's first record; "
            "read the key from the position of this write on to see whose it is",
            _CONDITIONS[name],
        )
    return topic_of(topic), key_of(key, query_of(event))


def of_write(written: Position | Queued, status: int, *, is_async: bool) -> Response[str]:
    """Answer a write: where the record stands, for a read to wait for; 202 for one that is queued.

    `is_async`: the client asked not to wait.
    """
    if isinstance(written, Position):
        return of_position(written, status)
    headers = {"Cache-Control": "no-store", **(ASYNC_APPLIED if is_async else {})}
    return Response(202, JSON, json.dumps({"status": "queued", "id": written.id}), headers)


def of_position(position: Position, status: int) -> Response[str]:
    """Answer a write: where the record stands, for a read to wait for."""
    fields = {"partition": position.partition, "offset": position.offset, "position": str(position)}
    headers = {"Keylane-Position": str(position), "Cache-Control": "no-store"}
    return Response(status, JSON, json.dumps(fields), headers)
