"""Answers of several records as one JSON document, with the freshness of all lanes that they come from.

    {"records": [{... as ?envelope=true has it}, {"key": "b", "key_format": "text", "absent": true}],
     "watermarks": {"3": 2077, "5": 1401}, "age_ms": 212}

`watermarks`: partition -> everything below is in the answer. `age_ms` is that of the oldest lane; where one
is still being built there is `building` instead. `incomplete` where retention has removed what a lane never
saw.
Headers: Keylane-Age-Ms, Keylane-Building and Keylane-Incomplete, as of one record.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from keylane.api.rendering import JSON
from keylane.api.response import Response

if TYPE_CHECKING:
    from keylane.query.freshness import Watermarks


def plain(fields: dict[str, Any]) -> Response[str]:
    """A document that has no freshness of its own."""
    headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    return Response(200, JSON, json.dumps(fields), headers)


def freshness_of(marks: Watermarks, now_ms: int) -> dict[str, Any]:
    """What the document tells of the lanes."""
    offsets = sorted(marks.next_offsets.items())
    told: dict[str, Any] = {"watermarks": {str(partition): next_offset for partition, next_offset in offsets}}
    if marks.is_building:
        told["building"] = True
    else:
        told["age_ms"] = marks.age_ms(now_ms)
    if marks.is_incomplete:
        told["incomplete"] = True
    return told


def document(inner: str, freshness: dict[str, Any], topic: str) -> Response[str]:
    """The document of a topic: what is JSON text already, then the freshness."""
    headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    for name, header in (
        ("age_ms", "Keylane-Age-Ms"),
        ("building", "Keylane-Building"),
        ("incomplete", "Keylane-Incomplete"),
    ):
        if name in freshness:
            headers[header] = json.dumps(freshness[name])
    response = Response(200, JSON, f"{{{inner}, {json.dumps(freshness)[1:-1]}}}", headers)
    if "age_ms" in freshness:
        response.ages = ((topic, freshness["age_ms"]),)
    return response
