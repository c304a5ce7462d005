"""Schemas of the query function's responses."""

from __future__ import annotations

from typing import Any

from keylane_build.openapi_terms import COUNT, FLAG, MAYBE_TEXT, TEXT, TIME, VALUE, a_list, an_object

_KEY = {"key": TEXT, "key_format": {"enum": ["text", "base64"]}}
_PLACE = {"partition": COUNT, "offset": COUNT, "position": TEXT, "timestamp": COUNT}
_FRESHNESS = {
    "watermarks": {
        "type": "object",
        "description": "offset by partition: the answer has every record below it",
        "additionalProperties": COUNT,
    },
    "age_ms": {
        **COUNT,
        "description": "staleness bound: no record that was acknowledged longer ago is missing",
    },
    "building": FLAG,
    "incomplete": FLAG,
}
_PAGE = {"next": {"type": "string", "description": "cursor of the next page; absent on the last page"}}

SCHEMAS: dict[str, Any] = {
    "Record": an_object(
        ("topic", *_PLACE, *_KEY, "value", "value_format", "watermark"),
        topic=TEXT,
        watermark=TEXT,
        age_ms=COUNT,
        building=FLAG,
        incomplete=FLAG,
        **_PLACE,
        **_KEY,
        **VALUE,
    ),
    "Row": {
        "description": "a record, or its key only, with `absent` or `history_too_short` as the reason",
        **an_object(
            tuple(_KEY),
            **_KEY,
            **_PLACE,
            **VALUE,
            absent=FLAG,
            history_too_short=FLAG,
            since_ms=COUNT,
        ),
    },
    "Entry": {
        "description": "a record of a history; a tombstone has `deleted` and no value",
        **an_object(tuple(_PLACE), **_PLACE, **VALUE, deleted=FLAG),
    },
    "Records": an_object(("records", "watermarks"), records=a_list("Row"), **_FRESHNESS),
    "Page": an_object(("records", "watermarks"), records=a_list("Row"), **_PAGE, **_FRESHNESS),
    "Changes": {
        "type": "string",
        "description": "Server-Sent Events, from the standing server: `record` and `absent` with the key's"
        " document, `gap`, `problem` and `closing`",
    },
    "History": an_object(
        (*_KEY, "records", "watermarks"), **_KEY, records=a_list("Entry"), **_PAGE, **_FRESHNESS
    ),
    "Joined": an_object(
        (*_KEY, "records", "watermarks"),
        **_KEY,
        **_FRESHNESS
        | {
            "records": {
                "type": "object",
                "description": "row by topic",
                "additionalProperties": {"$ref": "#/components/schemas/Row"},
            },
            "watermarks": {
                "type": "object",
                "description": "offset by topic, then by partition",
                "additionalProperties": {"type": "object", "additionalProperties": COUNT},
            },
        },
    ),
    "Lane": an_object(
        ("partition", "stripe", "slot", "shard", "next_offset", "log_end", "lag", "building", "incomplete"),
        partition=COUNT,
        stripe=COUNT,
        slot={"type": "integer", "minimum": 0, "maximum": 16383},
        shard=TEXT,
        next_offset=COUNT,
        log_end=COUNT,
        lag=COUNT,
        building=FLAG,
        incomplete=FLAG,
        has_strays=FLAG,
        age_ms=COUNT,
    ),
    "Topic": an_object(
        ("topic", "partitions", "stripes", "partitioner", "partition_by", "generation", "options", "lanes"),
        topic=TEXT,
        partitions=COUNT,
        stripes=COUNT,
        partitioner={"enum": ["murmur2", "crc32", "fnv1a"]},
        partition_by={"type": "string", "pattern": "^(key|prefix:.+)$"},
        generation=COUNT,
        options={"type": "object"},
        building=FLAG,
        incomplete=FLAG,
        lag=COUNT,
        age_ms=COUNT,
        strays={"type": "object", "additionalProperties": COUNT},
        lanes=a_list("Lane"),
    ),
    "Window": an_object(
        (*_KEY, "changed", "values"),
        **_KEY,
        start=TIME,
        end=TIME,
        final={**FLAG, "description": "the window will not change any more"},
        changed=COUNT,
        values={"type": "object", "description": "value by column of the view"},
    ),
    "Windows": an_object(
        ("windows",),
        windows=a_list("Window"),
        event_time={**COUNT, "description": "windows that end at or before this time are final"},
        **_PAGE,
        age_ms=_FRESHNESS["age_ms"],
        building=FLAG,
        incomplete=FLAG,
    ),
    "ListedView": an_object(
        ("view", "topic", "window", "columns", "partitions", "generation"),
        view=TEXT,
        topic=TEXT,
        key=MAYBE_TEXT,
        window=an_object(("kind",), kind={"enum": ["tumbling", "hopping", "session", "none"]}),
        columns={"type": "array", "items": TEXT},
        partitions=COUNT,
        generation=COUNT,
    ),
    "Views": an_object(("views",), views=a_list("ListedView")),
    "View": an_object(
        ("view", "topic", "window", "columns", "partitions", "generation", "late", "invalid", "lanes"),
        view=TEXT,
        topic=TEXT,
        key=MAYBE_TEXT,
        time=MAYBE_TEXT,
        where=MAYBE_TEXT,
        window=an_object(("kind",), kind={"enum": ["tumbling", "hopping", "session", "none"]}),
        lateness_ms=COUNT,
        ttl_ms={"type": ["integer", "null"]},
        columns={"type": "array", "items": an_object(("name", "kind"), name=TEXT, kind=TEXT)},
        partitions=COUNT,
        generation=COUNT,
        building=FLAG,
        incomplete=FLAG,
        age_ms=COUNT,
        event_time=COUNT,
        late={**COUNT, "description": "records that arrived after their window had become final"},
        invalid={**COUNT, "description": "records without a key or a time"},
        lanes={"type": "array", "items": {"type": "object"}},
    ),
    "Partitions": {
        "type": "object",
        "description": "partitions by the host:port that serves them",
        "additionalProperties": {"type": "array", "items": COUNT},
    },
}
