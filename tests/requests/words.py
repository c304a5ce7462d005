"""Texts, headers and values that requests are changed with: what parsers and checks differ on."""

from __future__ import annotations

from typing import Any

METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "QUERY", "")
LONG = 9_000
TEXTS = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1",
        "2147483647",
        "2147483648",
        "9223372036854775808",
        "1e9",
        "1" * 40,
        "NaN",
        "true",
    ),
    *(
        "null",
        "[]",
        "{}",
        "..",
        ".",
        "%",
        "%2",
        "%zz",
        "%00",
        "%0d%0a",
        "%ff",
        "%C3%BC",
        "%ED%A0%80",
        "%2F",
        "%23",
    ),
    *(
        "%252e%252e",
        "..%2f..%2fetc",
        "\xff",
        "\x00",
        "\x7f",
        "\\",
        "'",
        '"',
        "<script>",
        "*",
        ",",
        ";",
        "+",
        "%F0%9F%98%80",
    ),
    *(
        "earliest",
        "latest",
        "max",
        "absent",
        "0:0",
        "0:99999999",
        "1:1,0:1",
        "0:1@1795311449754",
        "base64",
        "text",
    ),
    *(
        "..<",
        "1..",
        "..1",
        "1..2",
        "a*",
        '"a"',
        '"\\ud800"',
        '{"id": "\\ud800"}',
        "-",
        ".a",
        "a.",
        "a.b.c",
        "2013-01-01",
        "2026-02-30",
    ),
    *(
        "9999-12-31T23:59:60Z",
        "a" * LONG,
        "%41" * LONG,
        ",".join("a" * 300),
        "=" * 50,
        "AAAA",
        "__proto__",
        "é",
    ),
)
HEADERS = (
    *(
        ("Prefer", value)
        for value in ("wait=0", "wait=1e9", "wait=", "respond-async", "wait=1, wait=2", ",;=")
    ),
    *(
        ("If-None-Match", value)
        for value in ("*", '"x"', 'W/"0:0"', "\xff", '"' + "a" * LONG + '"', '"a", "b",')
    ),
    *(("If-Match", value) for value in ("*", '"0:0"', "", '"')),
    *(
        ("If-Modified-Since", value)
        for value in ("Thu, 01 Jan 1970 00:00:00 GMT", "now", "Fri, 31 Dec 9999 23:59:59 GMT")
    ),
    *(
        ("If-Unmodified-Since", value)
        for value in ("Thu, 01 Jan 1970 00:00:00 GMT", "0", "Thu, 99 Foo 0000 00:00:00 GMT")
    ),
    *(
        ("Accept", value)
        for value in (
            "*/*",
            "a/b;q=2",
            ",;q=x",
            "application/octet-stream",
            "a/b," * 400,
            "text/event-stream",
        )
    ),
    *(("Accept", f"application/vnd.kafka.{kind}+json") for kind in ("v2", "json.v2", "v9", "")),
    *(("Accept-Encoding", value) for value in ("gzip", "gzip;q=0, *;q=0", "x", "br")),
    *(
        ("Content-Type", f"application/vnd.kafka.{kind}.v2+json")
        for kind in ("json", "binary", "text", "avro", "jsonschema", "protobuf", "x")
    ),
    *(
        ("Content-Type", value)
        for value in (
            "application/json",
            "text/plain",
            "\x7f",
            "application/json; charset=klingon",
            'a/b; a="',
            "multipart/form-data",
        )
    ),
    *(("Content-Encoding", value) for value in ("gzip", "deflate", "br", "gzip, gzip", "identity", "\xff")),
    *(("Idempotency-Key", value) for value in ("0", "a", "a b", "k" * 256, "\xff", "")),
    *(
        ("Keylane-Min-Position", value)
        for value in ("0:0", "0:0:0", "99:1", "1:999999999999999999", "", "-1:0")
    ),
    *(("Last-Event-ID", value) for value in ("absent", "0:0", "0:1,1:1@5", "0:1,0:1", "\xff", "99:1")),
    *(
        ("Host", value)
        for value in ("", "x, y", "a" * 300, "[::1", "evil.example", "localhost:99999", "\xff")
    ),
    *(
        ("Authorization", value)
        for value in ("", "Bearer", "Basic eDp5", "Bearer x y", "Bearer " + "a" * LONG, "bearer\t")
    ),
    *(("x-api-key", value) for value in ("", "x", "\xff")),
    *(("Expect", value) for value in ("100-continue", "200-ok")),
    *(("Upgrade", value) for value in ("websocket", "h2c")),
    *(("Connection", value) for value in ("close", "Upgrade", "keep-alive, Upgrade", "Host")),
    *(("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), ("Sec-WebSocket-Version", "13")),
    *(
        ("Range", "bytes=0-1"),
        ("traceparent", "00-" + "1" * 32 + "-" + "2" * 16 + "-01"),
        ("traceparent", "ff"),
    ),
    *(
        ("X-Forwarded-For", "::1, x"),
        ("X-Forwarded-Proto", "gopher"),
        ("Forwarded", 'for="'),
        ("Origin", "null"),
    ),
    *(
        ("Sec-Fetch-Site", "cross-site"),
        ("Access-Control-Request-Method", "PUT"),
        ("Cookie", "a=\xff"),
        ("Te", "trailers"),
    ),
    *(("X" * 300, "y"), ("X-Long", "y" * LONG), ("bad name", "x"), ("X-Odd", "a\x00b"), ("X-Odd", "a\rb")),
)
NUMBERS = (
    "-1",
    "0",
    "1.5",
    "1e400",
    "-0.0",
    "2147483648",
    "-9223372036854775809",
    "1" * 400,
    "1e-400",
    "NaN",
    "Infinity",
)
SCALARS: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        "",
        "a",
        "\x00",
        "\ud800",
        "é",
        "a" * LONG,
        "\U0001f600",
        "AAAA",
        "=",
        "1e5",
        "__proto__",
    ),
    *([], {}, [[]], [None], {"": 1}, {"a": {"b": []}}, {"$ref": "#"}, {"type": "JSON", "data": None}),
    *(
        "STRING",
        "JSON",
        "BINARY",
        "AVRO",
        "JSONSCHEMA",
        "PROTOBUF",
        "string",
        "record",
        "flights",
        "no-such-topic",
    ),
)
NAMES = (
    "records",
    "entries",
    "key",
    "value",
    "type",
    "data",
    "schema",
    "schema_id",
    "key_schema_id",
    "value_schema_id",
    "partition",
    "headers",
    "timestamp",
    "topic",
    "subject",
    "id",
    "$ref",
    "$id",
    "name",
    "fields",
    "items",
    "",
    "a",
    "é",
)
