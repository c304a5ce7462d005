"""The trace that a request belongs to, as W3C's Trace Context has it (https://www.w3.org/TR/trace-context/)."""

import re

from keylane.api.http.request import Request
from keylane.model.records import TRACEPARENT, NewRecord

TRACESTATE = "tracestate"
_STATE_CHARACTERS = 512
"""What every vendor must pass on."""
# Version ff, and ids of zeros, are invalid. A later version may have more fields.
_PARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]{0,200})?"
)

Headers = tuple[tuple[str, bytes], ...]


def trace_headers(request: Request) -> Headers:
    """Return the headers of records that a request writes; none if its trace is missing or invalid."""
    headers = request.headers
    parent = headers.get(TRACEPARENT)
    if parent is None or not _PARENT.fullmatch(parent):
        return ()
    state = headers.get(TRACESTATE, "")
    if not state or len(state) > _STATE_CHARACTERS or not state.isascii():
        return ((TRACEPARENT, parent.encode()),)
    return ((TRACEPARENT, parent.encode()), (TRACESTATE, state.encode()))


def has_trace(record: NewRecord) -> bool:
    """Return whether the client has given the record a trace of its own."""
    return any(name == TRACEPARENT for name, _ in record.headers)
