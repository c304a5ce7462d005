"""The topics that requests read: their layouts, and every record of their logs.

Nothing writes to them after the start, so both hosts and all checkouts read the same.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from keylane.model.records import Layout, Options
from keylane.state.codec import LeftInKafka

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX = "hosts-"
BASE_MS = 1_700_000_000_000
"""2023-11-14 22:13:20 UTC: the timestamp of the first record; each further one is a second later."""
FUTURE_MS = 4_102_444_800_000
"""2100-01-01: lanes that are complete as of then have the age 0 whenever they are read."""
CENTURY_MS = 100 * 365 * 86_400_000

Pairs = tuple[tuple[str, bytes | None], ...]


class Seed(NamedTuple):
    """A record; a value of None is a tombstone. `partition`: where it is against the partitioner, a stray.

    `at_ms`: its timestamp, None for that of its place in the log.
    """

    key: bytes
    value: bytes | LeftInKafka | None
    headers: Pairs | None = None
    at_ms: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class SeedTopic:
    """A topic with its records in order, in the state and in Kafka.

    `complete_as_of_ms`: of its lanes; 0: they are being built. `log_end`: see `Watermark`. `has_lanes`: False
    for a layout without any. `odd`: bytes that are stored under a key instead of a record.
    """

    layout: Layout
    records: tuple[Seed, ...] = ()
    complete_as_of_ms: int = FUTURE_MS
    log_end: int = 0
    incomplete: bool = False
    superseded: bool = False
    has_lanes: bool = True
    is_logged: bool = True
    odd: Mapping[bytes, bytes] = field(default_factory=dict)
    has_odd_watermarks: bool = False

    @property
    def name(self) -> str:
        return self.layout.topic


def a_topic(name: str, partitions: int = 1, records: Iterable[Seed] = (), **more: object) -> SeedTopic:
    """A topic; `more`: fields of the layout, of its options, and of SeedTopic."""
    of_layout = {each: more.pop(each) for each in ("stripes", "partitioner", "partition_by") if each in more}
    known = set(SeedTopic.__dataclass_fields__)
    own = {each: more.pop(each) for each in list(more) if each in known}
    layout = Layout(PREFIX + name, partitions, options=Options(**more), **of_layout)  # type: ignore[arg-type]
    return SeedTopic(layout, tuple(records), **own)  # type: ignore[arg-type]


ODD_KEYS = (
    *(b"a/b", b"100%", b"a b+c", "flüge".encode(), b"\x00\xff\n", b'"\\`', b"k" * 5_000, b"..", b"."),
    *(b"a?b#c", b"%2F", b"keys", b"\xf0\x9f\x9b\xab", b"a=b&c=d", b";", b"\x7f", b"k" * 65_536),
)
VALUES: dict[bytes, bytes] = {
    b"v-object": b'{"origin": "EWR", "dest": "IAH", "m": {"x": 1.10, "y": [1, {"z": null}]}, "n": 1e400}',
    b"v-spaces": b' {\n "a" : 1 ,\r\n\t"b":"\xc3\xbc" } \n',
    b"v-array": b'[1, 2.50, "x", {"a": 1}]',
    b"v-string": b'"text with \\u00fc and \\ud83d\\udeeb and \\ud800"',
    b"v-number": b"12345678901234567890.0987654321",
    b"v-true": b"true",
    b"v-null": b"null",
    b"v-twice": b'{"a": 1, "a": 2}',
    b"v-nan": b"NaN",
    b"v-text": b"just text",
    b"v-cut": b'{"a": ',
    b"v-utf8": "Zürich ✈ 東京".encode(),
    b"v-bytes": bytes(range(256)),
    b"v-zero": b"\x00",
    b"v-empty": b"",
    b"v-space": b" ",
    b"v-deep": b"[" * 2_000 + b"]" * 2_000,
    b"v-bom": b"\xef\xbb\xbf{}",
    b"v-crlf": b"a\r\nb\x00c",
    b"v-long": b'{"text": "' + b"x" * 100_000 + b'"}',
}
EXAMPLES = {
    b"N14228": b'{"origin": "EWR", "dest": "IAH"}',
    b"N24211": b'{"dest": "MIA"}',
    b"compat-record": b'{"dest": "SFO"}',
}
NAMES = tuple(b"%b|%02d" % (who, day) for who in (b"ann", b"bob", b"\xffeve") for day in range(15))


def _rows(values: Mapping[bytes, bytes | None]) -> list[Seed]:
    return [Seed(key, value) for key, value in values.items()]


def _bookings() -> list[Seed]:
    """Histories of up to seven records, of which five are kept; two keys are deleted at their end."""
    found = [Seed(b"ann|2026-11-09", b'{"to": "Bern"}')]
    for turn in range(7):
        for number, name in enumerate(NAMES):
            if turn <= number % 8:
                is_deleted = turn == 3 and number % 5 == 0
                found.append(
                    Seed(name, None if is_deleted else b'{"turn": %d, "of": {"n": %d}}' % (turn, number))
                )
    return [*found, Seed(b"bob|07", None), Seed(b"ann|03", None)]


def _feed() -> list[Seed]:
    return [Seed(b"f%02d" % (n % 7), b'{"n": %d, "m": 1}' % n) for n in range(20)]


HEADERS: tuple[Pairs, ...] = (
    (),
    (("source", b"crew"), ("source", b"ops"), ("empty", b""), ("none", None)),
    (("bin", b"\xff\x00"), ("ünï", "ö".encode()), ("json", b'{"a": 1}')),
)


def _framed(schema_id: int, payload: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + payload


def registered_topic(values: Mapping[bytes, bytes]) -> SeedTopic:
    """The topic whose values have schemas; `values` are those that a producer's serializers wrote."""
    broken: dict[bytes, bytes | None] = {
        b"r-unknown": _framed(987_654, b"x"),
        b"r-short": b"\x00\x00",
        b"r-plain": b'{"a": 1}',
        b"r-empty": b"",
        b"r-left": None,
        b"r-cut": values[b"r-avro"][:-3],
    }
    records = [*_rows(values), *_rows(broken), Seed(b"r-large", LeftInKafka(7_000_000))]
    return a_topic(
        "registered", 3, records, index=True, history_count=5, value_format="registry", is_logged=False
    )


FORMATS = {
    "text": a_topic("text", 1, _rows(VALUES), value_format="text", index=True, history_count=2),
    "json": a_topic("json", 1, _rows(VALUES), value_format="json", index=True, history_count=2),
    "bytes": a_topic("bytes", 1, _rows(VALUES), value_format="bytes", index=True, history_count=2),
}
_PLAIN = [
    *_rows(EXAMPLES),
    *_rows(VALUES),
    *(Seed(key, b'{"key": %d}' % index) for index, key in enumerate(ODD_KEYS)),
]
FLIGHTS = a_topic(
    "flights",
    9,
    [
        *_PLAIN,
        Seed(b"gone", b"1"),
        Seed(b"gone", None),
        Seed(b"future", b"1", at_ms=FUTURE_MS),
        Seed(b"timeless", b"1", at_ms=0),
        Seed(b"strayed", b'{"home": false}', partition=4),
    ],
)
TOPICS: tuple[SeedTopic, ...] = (
    FLIGHTS,
    *FORMATS.values(),
    a_topic("joined", 9, _rows({**EXAMPLES, **VALUES, b"N14228": b'{"amount": 1, "note": "x"}'})),
    a_topic("bookings", 9, _bookings(), index=True, history_count=5),
    a_topic("striped", 3, _rows({b"%d" % n: b'{"n": %d}' % n for n in range(40)}), stripes=4, index=3),
    a_topic("trips", 9, [Seed(name, b'{"trip": 1}') for name in NAMES], index=True, partition_by="prefix:|"),
    a_topic(
        "headers",
        2,
        [Seed(b"h%d" % number, b'{"a": 1}', headers) for number, headers in enumerate(HEADERS * 2)],
        index=True,
        history_count=3,
        headers=True,
    ),
    a_topic(
        "left",
        1,
        [Seed(b"large", LeftInKafka(5_000_000)), Seed(b"small", b"1")],
        index=True,
        history_count=2,
        is_logged=False,
    ),
    a_topic("aged", 1, _rows(EXAMPLES), index=2, history_age_ms=CENTURY_MS),
    a_topic(
        "ttl", 1, [Seed(b"stays", b"1"), Seed(b"over", b"1", at_ms=1)], index=True, ttl_ms=CENTURY_MS // 5
    ),
    a_topic("once", 1, [Seed(b"k", b'"first"'), Seed(b"k", b'"second"')], insert_once=True),
    a_topic("stale", 2, _rows(EXAMPLES), index=True, history_count=2, complete_as_of_ms=BASE_MS),
    a_topic("building", 2, has_lanes=False, index=True, history_count=2),
    a_topic("begun", 2, _rows(EXAMPLES), index=True, history_count=2, complete_as_of_ms=0, log_end=10),
    a_topic("incomplete", 2, _rows(EXAMPLES), index=True, history_count=2, incomplete=True),
    a_topic("superseded", 2, _rows(EXAMPLES), index=True, history_count=2, superseded=True),
    a_topic("corrupt", 1, _rows(EXAMPLES), index=True, history_count=2, odd={b"N14228": b"something else"}),
    a_topic("corrupt-lanes", 1, _rows(EXAMPLES), index=True, history_count=2, has_odd_watermarks=True),
    a_topic(
        "big",
        2,
        [Seed(b"b%d" % n, b'"' + b"%d" % n * 1_900_000 + b'"') for n in range(4)],
        index=True,
        history_count=2,
        is_logged=False,
    ),
    a_topic(
        "huge", 1, [Seed(b"bytes", b"\xff" * 4_600_000), Seed(b"text", b'"' * 3_100_000)], is_logged=False
    ),
    a_topic("crc", 9, _rows(EXAMPLES), partitioner="crc32"),
    a_topic("four", 4, _rows(EXAMPLES)),
    a_topic("hidden", 9, _rows(EXAMPLES), index=True, history_count=2),
    a_topic("feed", 2, _feed(), index=True, fields=(("m", "number"), ("n", "number"))),
    a_topic("empty", 2, index=True, history_count=2),
)
OUT = {
    **dict.fromkeys(("json", "limited", "hidden", "framed", "avro", "jsonschema", "protobuf"), 1),
    **dict.fromkeys(("v3-avro", "v3-jsonschema", "v3-protobuf", "compacted", "small"), 1),
    "three": 3,
    "compat": 3,
}
"""The topics that a run writes to, and their partitions."""
OUT_CONFIG = {"compacted": {"cleanup.policy": "compact"}, "small": {"max.message.bytes": "500"}}
CORRUPT_LAYOUT = PREFIX + "corrupt-layout"


def as_base64(key: bytes) -> str:
    """Base64 of the URL-safe alphabet, without padding."""
    return base64.urlsafe_b64encode(key).decode().rstrip("=")


def as_json(document: object) -> bytes:
    return json.dumps(document).encode()
