"""A corpus of values of records, made by rule: what other people's producers write, and what they should not.

The cases of JSON follow those of nst/JSONTestSuite in kind: what must be accepted, what must be refused, and
what parsers differ on.
"""

from __future__ import annotations

import json
import math
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Value(NamedTuple):
    """A value. `name`: unique; it begins with its group."""

    name: str
    data: bytes

    @property
    def group(self) -> str:
        return self.name.partition(":")[0]


SAMPLE = '{"v":[1,-2.5e3,"x\\u00e9\\n",true,null,{"a":{}}]}'
NUMBERS = [
    f"{sign}{whole}{fraction}{exponent}"
    for sign, whole, fraction, exponent in product(
        ("", "-"),
        ("0", "1", "1234567890123456789"),
        ("", ".0", ".50"),
        ("", "e0", "E+2", "e-7", "e400", "E-400"),
    )
]
LONG_NUMBERS = [
    f"{'9' * digits}{tail}"
    for digits in (15, 16, 17, 18, 19, 20, 37, 38, 39, 78, 1_001, 4_301)
    for tail in ("", ".5")
] + [f"0.{'3' * places}" for places in (9, 18, 37, 38, 39, 55, 1_001)]
TINY_NUMBERS = ["1e-9999", "1e-10000000", "-1.5E-0012345678", "1e10000000", "1e2147483648", "0e-2147483647"]
"""Java rounds some of them for hours."""
NO_NUMBERS = [
    "01", "-01", "+1", "1.", ".5", "-", "1e", "1e+", "1.e1", "0x1", "1_000", "1,000", "NaN", "Infinity",
]  # fmt: skip
NO_NUMBERS += [
    "-Infinity", "-NaN", "Inf", "\uff11", "1e1.5", "--1", "1-", "0b1", "2.e3", "1ea", "- 1", "1 000",
    "\u0661\u0662", "1d", "1f", "inf", "nan", "NAN", "-INFINITY", "1e 5", "0o7",
]  # fmt: skip
STRINGS = [
    r"\"", r"\\", r"\/", r"\b\f\n\r\t", r"\u0000", r"\u00e9", r"\ud83d\ude00", "é", "😀", "\x7f", "\u2028",
    "\ufffe", r"\uFFFF",
]  # fmt: skip
NO_STRINGS = [
    r"\x41", r"\u12", r"\u12G4", "\\", r"\a", "\n", "\t", "\x00", "\x1f", r"\U0041", r"\u", "\\ud83d\\",
]  # fmt: skip
CUT = [r"\ud83d", r"\ude00", r"\ude00\ud83d", r"hi \ud83d", r"\ud83dx", r"\ud83d\u0041"]
SPACES = [" ", "\t", "\n", "\r", " \r\n\t ", "\x0b", "\x0c", "\u00a0", "\u2003", "\ufeff", "\x00", "\u3000"]
BROKEN = [
    "", " ", "{", "}", "[", "]", "{]", "[}", ",", ":", "[,]", "[1,]", "[1,,2]", "[,1]", "[1 2]", "[1",
    '["a"', '{"a"}', '{"a":}', '{"a":1,}', '{,"a":1}', '{"a":1,,"b":2}', '{"a" 1}', '{"a"::1}', "{a:1}",
    "{1:1}", "{'a':1}", '{"a":1', '{"a":"b', "nul", "NULL", "True", "tru", "truee", "nullx", "undefined",
    "null null", "[1]]", "{}}", "{}{}", "{}\n{}", "{} {}", "1 2", '"a" "b"', "{}x", "{} OK", "[]#", "{}//c",
    "/*c*/{}", "{/*c*/}", "# c\n{}", "<a/>", "a=b", "---\na: 1", "['a']", "[1;2]", '{"v":1}\x00',
    '{"v":1}\n{"v":2}\n', '"', "'", "\\", '["\\"]', "*", "$", "key,value",
    '{"v":1},"w":2', '{"v":1},', '{"v":1}\x1a', '{"v":1}\x1e{"v":2}', '\x1e{"v":1}', '[{"v":1}',
    '{"v":1}{"v":',
    '{"v":1};', 'data: {"v":1}', ')]}\',\n{"v":1}', '{"v":1}/**/', '{"v":`1`}', "\ufeff", "\ufeffnull",
    "\ufeff\ufeff{}",
    '"' + '\\"' * 50_000, "[" * 400 + '"' + '\\"' * 50_000, '{"v":"' + "\\" * 50_001,
]  # fmt: skip
BYTES = [
    b"\xff", b"\xfe", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xc1\xbf", b"\xed\xa0\xbd", b"\xed\xb0\x80",
    b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xe9", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\x80",
    b"\xbf\xbf",
]  # fmt: skip
TIMES = [
    "2013-07-04", "20130704", "2013", "2013-07", "2013-07-04T05:00:00Z", "2013-07-04T05:00:00",
    "2013-07-04 05:00:00", "2013-07-04T05:00:00.123456789Z", "2013-07-04T05:00:00+02:00",
    "2013-07-04T05:00:00+0200", "20130704T050000Z", "2013-W27-4", "2013-185", "10:15:00", "T10:15", "now",
    "today", "epoch", "0001-01-01T00:00:00Z", "0000-01-01", "9999-12-31T23:59:59Z", "10000-01-01",
    "-2013-07-04", "2013-02-30", "2013-13-01", "2016-12-31T23:59:60Z", "1372896000000", "1372896000", "-1",
    "-6795364578871345152", "04.07.2013", "July 4, 2013", "Thu, 04 Jul 2013 05:00:00 GMT", "",
    " 2013-07-04 ", "infinity", "2013-07-04T24:00:00Z", "2013-07-04T24:00:01Z", "20130704T240000Z", "24:00",
    "2016-12-31T23:59:60", "2016-12-31 23:60:00", "23:59:60", "2013-03-31T02:30:00",
    "2013-10-27T02:30:00+01:00",
    "2013-03-31T02:30:00 Europe/Berlin", "2013-07-04T05:00:00 CET", "2013-07-04T05:00:00+18:00",
    "2013-07-04T05:00:00+18:01", "2013-07-04T05:00:00+25:00", "2013-07-04T05:00:00-00:00", "2013-07-04Z",
    "2013-07-04+02:00", "10:15:00Z", "10:15:00+02:00", "T101500", "PT10H15M", "P1Y2M3DT4H5M6.78S", "2013-7-4",
    "2013-07-04T5:00", "13-07-04", "2013/07/04", "0999-12-31", "+12013-07-04", "2013-07-04T05",
    "2013-07-04T05:00Z",
    "20130704T0500Z", "20130704T050000.123Z", "20130229", "2012366", "0000-00-00 00:00:00", "1582-10-10",
    "0001-01-01T00:00:00+18:00", "9999-12-31T23:59:59-18:00", "tomorrow", "yesterday", "2013 now",
    "2013-07-04t05:00:00z", "\uff12\uff10\uff11\uff13-07-04", "\u0662\u0660\u0661\u0663-07-04", "1.372896e12",
    "1372896000000.5", "1372896000000L", "1,372,896,000,000", "0x13f0000000", "253402300800000", "2013\u00a0",
    "2013-07-04T05:00:00[UTC]", "4 Temmuz 2013",
]  # fmt: skip
TIME_NUMBERS = [
    "0", "-1", "1372896000000", "1372896000", "1372896000000000", "1372896000000000000",
    "-6795364578871345152", "9223372036854775807",
]  # fmt: skip
TIME_NUMBERS += [
    "9223372036854775808", "1.372896e12", "253402300799999", "253402300800000", "-62135596800000",
    "-62135596800001", "0.5", "15890", "20130704", "2013", "1372896000000.9", "1.372896e15", "-0.0",
    "1e-10000000",
]  # fmt: skip
MONGO_VALUES = [
    '{"$oid":"596e275826f08b2730779e1f"}', '{"$numberLong":"9223372036854775807"}', '{"$numberLong":"x"}',
    '{"$numberLong":7}', '{"$numberInt":"-1"}', '{"$numberDouble":"1.5"}', '{"$numberDouble":"NaN"}',
    '{"$numberDouble":"-Infinity"}', '{"$numberDecimal":"NaN"}', '{"$numberDecimal":"12.50"}',
    '{"$numberDecimal":"1E+6144"}', '{"$numberDecimal":"-1E-6176"}', '{"$date":1372896000000}',
    '{"$date":{"$numberLong":"-62135596800001"}}', '{"$date":"2013-07-04T05:00:00Z"}',
    '{"$date":{"$numberLong":"9223372036854775807"}}', '{"$binary":"YQ==","$type":"00"}',
    '{"$binary":{"base64":"YQ==","subType":"04"}}', '{"$binary":{"subType":"04","base64":"YQ=="}}',
    '{"$minKey":1}', '{"$maxKey":1}', '{"$undefined":true}', '{"$timestamp":{"t":1,"i":2}}',
    '{"$regularExpression":{"pattern":"a","options":"i"}}', '{"$regex":"a","$options":"i"}',
    '{"$code":"x","$scope":{}}', '{"$ref":"c","$id":{"$oid":"a"}}', '{"$symbol":"a"}', '{"$uuid":"x"}',
    '{"$oid":"a","b":1}', '{"$oid":1}', '{"$oid":null}', '{ "$oid" : "a" }', '{"\\u0024oid":"a"}', "NaN",
    "Infinity",
    '"{\\"$oid\\":\\"a\\"}"', '"\\ud83d"', '{"a":[{"$numberLong":"1"},{"b":{"$date":0}}]}',
    '{"a":' * 498 + '{"$numberLong":"1"}' + "}" * 498, '{"a":' * 500 + "1" + "}" * 500,
]  # fmt: skip
"""Values of MongoDB, as its drivers and its connector write them."""
LEVELS = (1, 2, 100, 199, 200, 201, 400, 499, 500, 501, 700, 850, 999, 1_000, 1_001, 5_000, 100_000)
SHAPES = {"object": ('{"v":', "}"), "array": ("[", "]"), "mixed": ('{"v":[', "]}")}
CONNECTORS = {
    "mysql": {"file": "mysql-bin.000003", "pos": 484, "gtid": None, "snapshot": "false"},
    "postgresql": {"lsn": 24023128, "xmin": None, "sequence": '["24023119","24023128"]'},
    "sqlserver": {"change_lsn": "00000027:00000758:0003", "commit_lsn": "00000027:00000758:0005"},
    "oracle": {"scn": "1513734", "rs_id": "0x00001.00000001.0001", "ssn": 0},
    "db2": {"change_lsn": "00000000:00000017:00000007", "commit_lsn": None},
    "cassandra": {"cluster": "c", "file": "CommitLog-6-1.log", "position": 16},
    "vitess": {"vgtid": '[{"keyspace":"shop","shard":"-80","gtid":"MySQL56/a:1-3"}]', "shard": "-80"},
    "spanner": {"number_of_records_in_transaction": 1, "record_sequence": "00000001"},
    "mariadb": {"gtid": "0-1-42", "file": "mariadb-bin.000001"},
    "informix": {"change_lsn": "21484679168", "txId": 7},
}


@cache
def corpus() -> tuple[Value, ...]:
    found: dict[bytes, str] = {}
    for group, data in _all():
        found.setdefault(data, f"{group}:{len(found)}")
    return tuple(Value(name, data) for data, name in found.items())


def _all() -> Iterator[tuple[str, bytes]]:
    for group, texts in (("number", NUMBERS + LONG_NUMBERS + TINY_NUMBERS), ("no number", NO_NUMBERS)):
        yield from ((group, f'{{"v":{text}}}'.encode()) for text in texts)
    texts = [
        *TINY_NUMBERS, "1e400", "1" * 39, "1_000", "\u0661\u0662", "0x1", "NaN", "Infinity", "-INF", " 1 ",
        ".5",
    ]  # fmt: skip
    yield from (("number in a string", json.dumps({"v": text}).encode()) for text in texts)
    yield from (("number alone", text.encode()) for text in (*NUMBERS[::7], *LONG_NUMBERS[::5]))
    for group, texts in (("string", STRINGS), ("no string", NO_STRINGS), ("half a pair", CUT)):
        yield from ((group, f'{{"v":"{text}"}}'.encode()) for text in texts)
    yield from (("half a pair", f'{{"v":1,"{text}":2}}'.encode()) for text in CUT)
    for space in SPACES:
        yield "space", f'{space}{{"v":1}}'.encode()
        yield "space", f'{{"v":1}}{space}'.encode()
        yield "space", f'{{{space}"v"{space}:{space}1}}'.encode()
    yield from (("broken", text.encode()) for text in BROKEN)
    yield from (("cut off", SAMPLE[:length].encode()) for length in range(1, len(SAMPLE)))
    yield from (("doubled", (SAMPLE[:at] + SAMPLE[at] + SAMPLE[at:]).encode()) for at in range(len(SAMPLE)))
    for data in BYTES:
        yield "not UTF-8", data
        yield "not UTF-8", b'{"v":"' + data + b'"}'
    yield from (("UTF-16", '{"v":1}'.encode(code)) for code in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"))
    yield from (("time", json.dumps({"v": text}).encode()) for text in TIMES)
    yield from (("time", f'{{"v":{text}}}'.encode()) for text in TIME_NUMBERS)
    for (shape, (begin, end)), levels in product(SHAPES.items(), LEVELS):
        count = math.ceil(levels / (2 if shape == "mixed" else 1))
        yield "depth", f"{begin * count}1{end * count}".encode()
        yield "depth cut off", f"{begin * count}1{end * (count - 1)}".encode()
    yield from (
        ("width", f'{{"v":{text}}}'.encode())
        for text in (
            *("[" + "[1]," * 2_000 + "1]", '"' + "[" * 3_000 + '"'),
            # Of each its own type.
            "[" + ",".join(f'{{"a{number}":1}}' for number in range(20_000)) + "]",
            "{" + ",".join(f'"a{number}":1' for number in range(20_000)) + "}",
            "[" * 200 + ",".join(f'{{"a{number}":[{number}]}}' for number in range(2_000)) + "]" * 200,
            "{" + ",".join(['"a":1'] * 20_000) + "}",
        )
    )
    for size in (1_000, 65_537, 1_000_000):
        yield "size", json.dumps({"v": "x" * size}).encode()
        yield "size", json.dumps({"v": 1, "n" * size: 2}).encode()
        yield "size", json.dumps({"v": list(range(size // 10))}).encode()
    for value in (
        None, True, False, "", "a", 0, [], {}, [[]], {"": 1}, {"a.b": 1}, {"v": {"v": 1}}, {"v": None},
        {"V": 1},
    ):  # fmt: skip
        yield "plain", json.dumps(value).encode()
    yield from (
        ("twice", text)
        for text in (
            b'{"v":1,"v":2}', b'{"v":1,"v":null}', b'{"v":{"a":1},"v":{"b":2}}', b'{"v":{"a":1,"a":2}}',
            b'{"\\u0076":1}', b'{"v":1,"\\u0076":2}', b'{"v":"x","v":{"v":"y"}}',
            b'{"v":{"v":1},"v":2,"V":3}',
        )
    )  # fmt: skip
    number = b"1" * 39
    yield from (
        ("twice", text)
        for text in (b'{"v":%s,"s":"%s"}' % (number, number), b'{"%s":1,"v":%s}' % (number, number))
    )
    yield from (
        ("framed", b"\0" + schema + data)
        for schema in (b"", b"\0\0\0\1", b"\xff" * 4)
        for data in (b"", b"\2a", b"\0\2\2", b'{"v":1}')
    )
    yield from (
        ("binary", data)
        for data in (
            b"\x08\x96\x01", b"\x12\x07testing", b"Obj\x01\x04", b"PK\x03\x04", b"\x1f\x8b\x08", b"\x00" * 8,
            bytes(range(256)),
        )
    )  # fmt: skip
    yield from (("event", event) for event in _events())


def _mongo_event(value: str) -> bytes:
    """An event whose row is a document of extended JSON."""
    return json.dumps({"before": None, "after": f'{{"v":{value}}}', "op": "c"}).encode()


def _events() -> Iterator[bytes]:
    """Change events of each connector, in each shape, and what is none."""
    row, older = {"v": 1, "name": "Ann"}, {"v": 0, "name": "Ann"}
    states = {
        "c": (None, row),
        "r": (None, row),
        "u": (older, row),
        "d": (row, None),
        "t": (None, None),
        "m": (None, None),
    }
    for (connector, details), (op, (before, after)) in product(CONNECTORS.items(), states.items()):
        source = {
            "version": "3.0.0.Final",
            "connector": connector,
            "ts_ms": 1559033904863,
            "db": "shop",
            "table": "t",
            **details,
        }
        event = {
            "before": before,
            "after": after,
            "source": source,
            "op": op,
            "ts_ms": 1559033904961,
            "transaction": None,
        }
        yield json.dumps(event).encode()
        yield json.dumps(
            {"schema": {"type": "struct", "optional": False, "name": "t.Envelope"}, "payload": event}
        ).encode()
    for deleted in ("true", "false", True, False, None, "yes", 1):
        yield json.dumps(row | {"__op": "u", "__table": "t", "__deleted": deleted}).encode()
    yield from (
        b'{"op":"d"},"x":1',
        b'{"after":{"v":1},"op":"c"},"x":{"y":[1]}',
        b'{"v":1,"__deleted":"\\u0074rue"}',
        b'{"v":1,"__deleted":"TRUE"}',
        b'{"after":{"v":1},"\\u006fp":"\\u0063"}',
        b'{"after":{"v":1},"op":"c","op":"d"}',
        b'{"op":"d","op":null}',
        b'{"after":null,"after":{"v":1},"op":"c"}',
        b'{"after":{"v":1},"after":null,"op":"c"}',
        b'{"op":null,"payload":{"op":"d"}}',
        b'{"payload":{"payload":{"op":"d"}}}',
        b'{"payload":"{\\"op\\":\\"d\\"}"}',
        b'\xef\xbb\xbf{"op":"d"}',
        b'[{"op":"d"}]',
    )
    yield from map(_mongo_event, MONGO_VALUES)
    for op in (None, 1, "x", "", ["c"], {"c": 1}, "C"):
        yield json.dumps({"before": None, "after": row, "op": op}).encode()
    for after in (None, 1, "a", [], [row], {}, '{"v":1}', {"v": {"v": 1}}):
        yield json.dumps({"after": after, "op": "u"}).encode()
    for text in (
        '{"v":1,"v2":NaN}', '{"v":"\\ud83d"}', f'{{"v":{"7" * 78}}}', '{"v":1e400}', "[" * 600 + "]" * 600,
        '{"v":"\\x"}',
    ):  # fmt: skip
        yield f'{{"before":null,"after":{text},"op":"u"}}'.encode()
        yield f'{{"before":{text},"after":null,"op":"d"}}'.encode()
        yield f'{{"before":null,"after":{{"v":1}},"op":"c","other":{text}}}'.encode()
