"""`POST /v3/clusters/{cluster}/topics/{topic}/records` of Confluent's REST Proxy: a stream of records.

The body is one record, as `v3_records` has them, or several one after another. A record that is
invalid does not hold up the others; behind text that is not JSON nothing is read. The cluster's id is
returned in the reports, and not checked. See `v3_reports` for the response.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from keylane.api.http.rendering import JSON
from keylane.api.http.request import Request, id_of, json_parameters, topic_of
from keylane.api.rest_proxy.v3_records import RecordParser, StreamedRecord
from keylane.api.writes.record_bodies import BODY_LIMIT_BYTES, RECORDS_LIMIT
from keylane.errors import BadField, BadRequest, RecordRejected, TooLarge
from keylane.formats import json_text
from keylane.model.records import NewRecord

BODIES: dict[str, Any] = {
    JSON: {"description": "records, one object after another: partition_id, headers, key, value, timestamp"}
}
_CHARSETS = ("utf-8", "iso-8859-1")


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The records of a request, each in its place, or why it is invalid. `ids`: of a batch's entries."""

    cluster: str
    topic: str
    entries: list[StreamedRecord | RecordRejected]
    ids: tuple[str, ...] = ()

    @property
    def records(self) -> list[NewRecord]:
        """Those that are valid."""
        return [each.record for each in self.entries if isinstance(each, StreamedRecord)]


def parse_stream(request: Request, cluster: str, topic: str, parser: RecordParser) -> StreamRequest:
    """Parse a request.

    Raises BadRequest, BadField where the body is empty, UnsupportedMediaType, TooLarge.
    """
    name, body = topic_of(topic), read_body(request)
    if not body.strip():
        raise BadField("is empty: it must be a JSON object", "body")
    return StreamRequest(id_of(cluster), name, list(_entries(body, name, parser)))


def read_body(request: Request) -> bytes:
    """The body of a request in JSON. Raises BadRequest, UnsupportedMediaType, TooLarge."""
    for parameter in json_parameters(request):
        if parameter.startswith("charset=") and parameter[8:].strip('"') not in _CHARSETS:
            raise BadRequest(f"{parameter[:50]!r} is not supported: the body must be UTF-8", "Content-Type")
    body = request.content()
    if len(body) > BODY_LIMIT_BYTES:
        raise TooLarge("body", len(body), BODY_LIMIT_BYTES)
    return body


def _entries(body: bytes, topic: str, parser: RecordParser) -> Iterator[StreamedRecord | RecordRejected]:
    try:
        for index, document in enumerate(json_text.parse_stream(body)):
            if index == RECORDS_LIMIT:
                raise BadField(f"has more than {RECORDS_LIMIT} records", "body")
            yield parser.parse(document, topic)
    except ValueError as error:
        yield RecordRejected(f"the text {json_text.why_not_json(error)}; what follows was not read")
