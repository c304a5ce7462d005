"""Responses that are one JSON document; those of several records carry the freshness of all their lanes.

    {"records": [{... as with ?envelope=true}, {"key": "b", "key_format": "text", "absent": true}],
     "watermarks": {"3": 2077, "5": 1401}, "age_ms": 212}

`watermarks`: partition -> offset below which all records are in the answer. `age_ms` is the age of the oldest
lane; if a lane is still being built, the response has `building` instead. It has `incomplete` if retention
removed records before a lane read them.
Headers: Keylane-Age-Ms, Keylane-Building and Keylane-Incomplete, as for one record.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from keylane.api.http.rendering import JSON
from keylane.api.http.response import Response
from keylane.model.records import Answer
from keylane.query.store import Watermarks

_HEADERS = {"age_ms": "Keylane-Age-Ms", "building": "Keylane-Building", "incomplete": "Keylane-Incomplete"}
"""Field of the document -> header that repeats it."""


class FreshnessFields(NamedTuple):
    """The document's fields that say how fresh it is; `ages` as in `Response`."""

    fields: dict[str, Any]
    ages: tuple[tuple[str, int], ...]


def freshness_of_lanes(watermarks: Watermarks, now_ms: int) -> FreshnessFields:
    """Return the freshness of an answer that comes from lanes of one topic."""
    offsets = {str(partition): offset for partition, offset in sorted(watermarks.next_offsets.items())}
    ages = () if watermarks.is_building else ((watermarks.layout.topic, watermarks.age_ms(now_ms)),)
    return _freshness(offsets, ages, is_incomplete=watermarks.is_incomplete)


def freshness_of_topics(answers: Sequence[Answer], now_ms: int) -> FreshnessFields:
    """Return the freshness of answers from several topics; `watermarks` are by topic, then by partition."""
    offsets = {each.layout.topic: {str(each.partition): each.watermark.next_offset} for each in answers}
    ages = [(each.layout.topic, each.age_ms(now_ms)) for each in answers if not each.is_building]
    is_incomplete = any(each.watermark.incomplete for each in answers)
    return _freshness(offsets, tuple(ages) if len(ages) == len(answers) else (), is_incomplete=is_incomplete)


def _freshness(
    watermarks: dict[str, Any], ages: tuple[tuple[str, int], ...], *, is_incomplete: bool
) -> FreshnessFields:
    fields: dict[str, Any] = {"watermarks": watermarks}
    if ages:
        fields["age_ms"] = max(age_ms for _, age_ms in ages)
    else:
        fields["building"] = True
    if is_incomplete:
        fields["incomplete"] = True
    return FreshnessFields(fields, ages)


def render_json(fields: dict[str, Any]) -> Response[str]:
    """Render a document that says nothing of its freshness."""
    return _response(json.dumps(fields), {})


def render_fresh(body: str, freshness: FreshnessFields, more: dict[str, Any] | None = None) -> Response[str]:
    """Render a document with its freshness: `body` is the JSON text of its first fields, without braces.

    `more`: fields between the two.
    """
    return render_rows([body], freshness, more, before="", behind="")


def render_rows(
    rows: list[str],
    freshness: FreshnessFields,
    more: dict[str, Any] | None = None,
    *,
    before: str = '"records": [',
    behind: str = "]",
) -> Response[str]:
    """As `render_fresh`, of the JSON texts of rows, and of what is before and behind all of them.

    They are joined once, and `rows` is used up: a page may have 32 MiB, and to copy it holds up all others.
    """
    last = json.dumps((more or {}) | freshness.fields)[1:-1]
    start, end = f"{{{before}", f"{behind}, {last}}}"
    if rows:
        rows[0] = start + rows[0]
        rows[-1] += end
    known = {header: freshness.fields[name] for name, header in _HEADERS.items() if name in freshness.fields}
    response = _response(
        ", ".join(rows or [start + end]), {header: json.dumps(value) for header, value in known.items()}
    )
    response.ages = freshness.ages
    return response


def _response(body: str, headers: dict[str, str]) -> Response[str]:
    common = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    return Response(200, JSON, body, common | headers)
