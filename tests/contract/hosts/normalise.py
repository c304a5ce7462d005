"""What two recordings of a request do not have in common although nothing has changed: times, ages, ids.

All of it is replaced here, and nothing anywhere else. Offsets are not: a run writes to topics of its own. Nor
are ages of less than a century's tenth: the topics' lanes are complete as of a time to come, so most are 0.
"""

from __future__ import annotations

import re
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple

from tests.contract.hosts.case import TAG, Answer, Case

if TYPE_CHECKING:
    from collections.abc import Iterable

ID, NOW, AGE = "REQUEST-ID", "NOW", "AGE"
ID_HEADER = "x-amzn-requestid"
_LINE = Case("", "", floats=True)
_SHORT = 10
"""Digits of an age that is not replaced: it is below 115 days."""
_OLD = rb"\d{%d,}" % (_SHORT + 1)
_AGES = re.compile(rb'("age_ms": |the state may be )%b\b' % _OLD)
_QUOTED_AGES = re.compile(rb'(\\"age_ms\\": )%b\b' % _OLD)
_MOMENT_MS = re.compile(rb"(?<![\d.-])1\d{12}(?![\d.])")
_INSTANT = re.compile(rb"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_RECORD_ID = re.compile(rb"\b[0-9a-f]{32}(-\d+)\b")
_PLACE = re.compile(rb'("partition(?:_id)?": |"offset": )\d+|(?<!\d)\d+:\d+(?!\d)')
RULES: tuple[tuple[re.Pattern[bytes], bytes, str], ...] = (
    (re.compile(rb'"took_ms": \d+'), b'"took_ms": TOOK', "how long a part took to answer"),
    (
        re.compile(rb"is not in the state after \d+ ms"),
        b"is not in the state after WAITED ms",
        "a read's wait",
    ),
    (
        re.compile(rb"; try again in \d+ s"),
        b"; try again in SECONDS s",
        "until a rate limit admits a request",
    ),
    (_AGES, rb"\1AGE", "the age of lanes that were complete years ago"),
    (_QUOTED_AGES, rb"\1AGE", "the same, in a text that is JSON"),
    (_RECORD_ID, rb"QUEUED\1", "the id of a record in the write-ahead log"),
)
"""In bodies: what is replaced, by what, and what it is."""
_CURSOR = re.compile(rb'(\\?"next\\?": )\\?"[A-Za-z0-9_-]+\\?"')
_OF_JWT = "Bearer eyJ"
_HANGING = re.compile(rb"no node of the Redis Cluster returned the slot map|Redis did not answer in time")
"""Where Redis hangs, two limits end a wait at the same time."""
_REQUEST_ID = re.compile(rb"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
HEADERS = {"date": "the time of the answer", "ratelimit-reset": "until a rate limit is full"}
"""Headers whose values are replaced."""


METRICS = "/metrics"
"""Of this page the names of the metrics are compared: its numbers are those of all requests before."""


class Span(NamedTuple):
    """When something was done, ms since 1970: times in between are those of a recording."""

    begin_ms: int
    end_ms: int

    def has(self, moment_ms: int) -> bool:
        return self.begin_ms <= moment_ms <= self.end_ms

    def has_date(self, date: str) -> bool:
        """Whether it has a date of HTTP, which has whole seconds: that of a record of times to come."""
        return self.has(_milliseconds(parsedate_to_datetime(date).isoformat()) + 999)


class Run(NamedTuple):
    """What is of one run alone. `ids`: those of its requests. `hangs`: something behind the hosts hangs."""

    tag: str
    span: Span
    ids: frozenset[bytes]
    hangs: bool

    @classmethod
    def of(cls, tag: str, span: Span, answers: Iterable[Answer] = (), *, hangs: bool = False) -> Run:
        ids = frozenset(answer.header(ID_HEADER).encode() for answer in answers)
        return cls(tag, span, ids - {b""}, hangs)


def normalised(answer: Answer, case: Case, run: Run) -> Answer:
    """The answer without what is of this one recording."""
    request_id = answer.header(ID_HEADER).encode()
    headers = []
    for name, value in answer.headers:
        shown = _header(name.lower(), value, answer, run.span).encode("latin-1", "replace")
        headers.append((name, _floating(_text(shown, request_id, run), case).decode("latin-1")))
    body = _text(answer.body, request_id, run)
    for pattern, replaced, _ in RULES:
        body = pattern.sub(replaced, body)
    if any(value.startswith(_OF_JWT) for _, value in case.headers):
        # It is bound to the caller's rules, of which a function gets those of the request's topics.
        body = _CURSOR.sub(rb'\1"CURSOR"', body)
    if run.hangs:
        body = _HANGING.sub(b"Redis hangs", body)
    if case.path == METRICS:
        body = b"\n".join(sorted(line for line in body.splitlines() if line.startswith(b"#")))
    return Answer(answer.status, tuple(sorted(headers)), _floating(body, case))


def normalised_line(line: str, run: Run) -> bytes:
    """A record that was written, or an answer of the drain function; ids are those of any of the requests."""
    text = normalised(Answer(0, (), line.encode()), _LINE, run).body
    return _REQUEST_ID.sub(lambda found: ID.encode() if found[0] in run.ids else found[0], text)


def _header(name: str, value: str, answer: Answer, span: Span) -> str:
    """The value of a header, whose name is in lower case."""
    is_limited = name == "retry-after" and answer.header("ratelimit-limit")
    if name in HEADERS or is_limited:
        return name.upper()
    if name == "content-length" and value == str(len(answer.body)):
        return "LENGTH"
    if name == "keylane-age-ms" and len(value) > _SHORT:
        return AGE
    return NOW if name == "last-modified" and span.has_date(value) else value


def _text(text: bytes, request_id: bytes, run: Run) -> bytes:
    text = text.replace(run.tag.encode(), TAG.encode())
    if request_id:
        text = text.replace(request_id, ID.encode())
    text = _MOMENT_MS.sub(lambda found: _now(found[0], int(found[0]), run.span), text)
    return _INSTANT.sub(lambda found: _now(found[0], _milliseconds(found[0].decode()), run.span), text)


def _now(text: bytes, moment_ms: int, span: Span) -> bytes:
    return NOW.encode() if span.has(moment_ms) else text


def _milliseconds(instant: str) -> int:
    try:
        return round(datetime.fromisoformat(instant).timestamp() * 1000)
    except ValueError:
        return 0


def _floating(text: bytes, case: Case) -> bytes:
    """Without the positions of records that have no key: Kafka's client puts them into any partition."""
    return _PLACE.sub(lambda found: (found[1] or b"") + b"ANY", text) if case.floats else text
