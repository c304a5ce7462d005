"""The short way of the server's most frequent writes: a PUT of a key, and a push of one record.

As of look-ups (lookups): a request is plain if its path and its body alone decide on what is written. Its
record is handed to Kafka's client in the loop, without a greenlet, and its answer is rendered when the record
is acknowledged. What is not plain takes the way of all requests, with the body that has been read; a record
that is not acknowledged at once goes on as any other, in a greenlet.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from keylane.access.grants import Need
from keylane.api.http import problems
from keylane.api.http.request import Request
from keylane.api.writes import kprf
from keylane.api.writes.key import WriteKeyRequest, render_write
from keylane.errors import KeylaneError
from keylane.model.records import NewRecord
from keylane.model.routes import BY_NAME, PermissionKind
from keylane.ports import Deadline
from keylane.produce.put import fault_of
from keylane_server.kafka.shared_producer import SharedProducer
from keylane_server.received import KEY_PATH, plain_headers, without_base

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keylane.api.http.response import Response
    from keylane.app.produce import ProduceApp
    from keylane.model.routes import Route
    from keylane.ports import RecordResult
    from keylane.wiring.produce import ProduceParts
    from keylane_server.access import TokenAuthorizer
    from keylane_server.admission import AdmissionControl

    Scope = dict[str, Any]

PUT, PUSH = BY_NAME["put_key"], BY_NAME["push"]
_PUSH_PATH = b"/push"
LARGEST_BYTES = 64 * 1024
"""Of a plain body: a larger one takes long to parse."""
NOT_PLAIN = frozenset(
    {
        *(b"transfer-encoding", b"content-encoding", b"expect", b"prefer", b"idempotency-key", b"x-api-key"),
        *(b"if-match", b"if-none-match", b"traceparent"),
    }
)
"""Headers that may change what is written or answered: besides Host, Authorization and Content-Length."""


class PlainHead(NamedTuple):
    """The head of a plain request. `topic`, `key`: of a PUT; both empty of a push."""

    request_id: str
    begun_s: float
    size_bytes: int
    topic: str
    key: bytes


class _Parsed(NamedTuple):
    """What a request writes, and how that is answered. `method`: its name in metrics, if not its route's."""

    record: NewRecord
    route: Route
    render: Callable[[Sequence[RecordResult]], Response[str]]
    method: str = ""


class PlainWrites:
    """Answers plain writes of one process. For the loop's thread."""

    def __init__(
        self,
        application: ProduceApp,
        parts: ProduceParts,
        log: SharedProducer,
        admission: AdmissionControl,
        authorizer: TokenAuthorizer | None,
    ) -> None:
        self._application = application
        self._parts = parts
        self._log = log
        self._admission = admission
        self._authorizer = authorizer
        self._counts_addresses = bool(admission.limits.of_address)
        self._base_path = application.settings().base_path.encode()

    @classmethod
    def open(
        cls, application: ProduceApp, admission: AdmissionControl, authorizer: TokenAuthorizer | None
    ) -> Self | None:
        """Return what answers them; None where each write has to be guarded, checked, named or queued.

        Also where nothing can be written: each request is answered why.
        """
        try:
            parts = application.parts()
            application.settings()
        except KeylaneError:
            return None
        writer = parts.writer
        is_plain = writer.wal is None and writer.checks is None and parts.request_id_header is None
        if not is_plain or parts.guards.limits is not None or not isinstance(writer.log, SharedProducer):
            return None
        return cls(application, parts, writer.log, admission, authorizer)

    def find(self, scope: Scope, request_id: str) -> PlainHead | None:
        """Return the head of a plain request whose body may be read; None of any other request."""
        is_push = scope["method"] == "POST"
        if self._counts_addresses or not (is_push or scope["method"] == "PUT"):
            return None
        begun_s = time.perf_counter()
        path = without_base(scope["raw_path"], self._base_path)
        found = None if is_push else KEY_PATH.fullmatch(path)
        if found is None and not (is_push and path == _PUSH_PATH):
            return None
        headers = plain_headers(scope, NOT_PLAIN)
        if headers is None:
            return None
        length = headers.get(b"content-length", b"")
        if not length.isdigit() or int(length) > LARGEST_BYTES:
            return None
        topic, key = ("", b"") if found is None else (found[1].decode(), found[2])
        if not self._may_write(headers, topic):
            return None
        return PlainHead(request_id, begun_s, int(length), topic, key)

    async def answer(self, head: PlainHead, body: bytes) -> Response[Any] | None:
        """Write the record of a request; None where it has to take the way of all: nothing was written."""
        parsed = self._parse(head, body)
        places = self._admission.writes
        if parsed is None or not places.enter_at_once():
            return None
        try:
            writer = self._parts.writer
            write = self._log.begin(parsed.record, Deadline.after_ms(writer.timeout_ms, writer.clock))
            if write is None:
                return None
            try:
                response = parsed.render([await self._log.result(write)])
            except KeylaneError as error:
                response = problems.response_to(error, head.request_id)
        finally:
            places.leave()
        response.method = parsed.method
        return self._application.finish(response, parsed.route, head.request_id, head.begun_s)

    def _parse(self, head: PlainHead, body: bytes) -> _Parsed | None:
        if head.topic:
            record = NewRecord(head.topic, head.key, body)
            parsed = _Parsed(record, PUT, partial(render_write, WriteKeyRequest(record, is_async=False), 201))
        else:
            try:
                pushed = kprf.parse_push(Request("POST", "/push", {}, {}, body, id=head.request_id))
            except KeylaneError:
                return None
            if len(pushed.records) != 1:
                return None
            render = partial(kprf.render_push, head.request_id, as_kprf=self._parts.pushes_as_kprf)
            parsed = _Parsed(pushed.records[0], PUSH, render, pushed.method)
        return None if fault_of(parsed.record, self._parts.writer) is not None else parsed

    def _may_write(self, headers: dict[bytes, bytes], topic: str) -> bool:
        authorizer = self._authorizer
        if authorizer is None:
            return True
        need = Need(PermissionKind.WRITE, (topic,) if topic else None)
        return not authorizer.is_due and authorizer.is_granted(headers.get(b"authorization", b""), need)
