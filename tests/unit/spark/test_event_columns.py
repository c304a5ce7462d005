"""Change events as columns: their verdicts are those of the reader that readers' answers come from."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.records.values import corpus

from keylane.formats.change_events import parse_event
from keylane.formats.json_text import MAX_NESTING
from keylane_spark.rows import change_events
from keylane_spark.rows.change_events import DELETION, INVALID, SET, apply_events, judge_json, read_event
from keylane_spark.rows.records import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.formats.change_events import RowEvent

SETTING = b'{"before":null,"after":{"id":1},"op":"c"}'
DELETING = b'{"before":{"id":1},"after":null,"op":"d"}'
ENDS = [
    SETTING, DELETING, b'{"op": "u", "after": {"op": "d"}}', b'{"op":"u","before":{},"after":null}',
    b'{"schema":{"x":[1]},"payload":{"after":{},"op":"r"}}', b'{"payload":{"op":"d"}}', b'{"payload":null}',
    b'{"id":1,"__deleted":"true"}', b'{"id":1,"__deleted":"false","payload":{"op":"d"}}',
    b'{"schema":{},"payload":{"id":1,"__deleted":"true"}}', b'{"__deleted":true}', b'{"__deleted":"x"}', b"",
    b"null", b"1", b"[]", b"{}", b'{"op":"t"}', b'{"op":1}', b'{"op":null}', b'{"op":"d"', b"\xff",
    b'{"before":null,"after":"{\\"_id\\": {\\"$oid\\": \\"a\\"}}","op":"c"}',
    b'{"payload":{"after" : "{}","op":"r"},"schema":{}}', b'{"after":"{\\"a\\": 1","op":"u"}',
    b'{"after":"[]","op":"u"}', b'{"before":"{}","after":null,"op":"d"}', b'{"after":"{}","op":"d"}',
    b'{"after":null,"updateDescription":{"updatedFields":"{}"},"op":"u"}',
    b'{"before":{"after":"{}"},"after":{},"op":"u"}', b'{}}{"event":{"op":"d"}', b'{"op":"d"}{"op":"d"}',
    b'{"a":"', b'"}', b'{"a":[', b"]}", b'{}\n{"op":"d"}', b'{"op":"c","op":"d"}', b'{"op":\n"d"}',
    b'{"\\u006fp":"d"}', b'{"op":"d","a":"\n"}', b'{},"b":{"op":"d"}', b'{"op":"d"},"x":1',
    b'{"after":{},"op":"c"},"x":{"y":[1]}', b'{"__deleted":"\\u0074rue"}', b'{"__deleted":"TRUE"}',
    b'{"__deleted":1}', b'{"__deleted":[true]}', b'{"op":"\\u0064"}', b'{"\\u0061fter":{},"op":"c"}',
    b'{"op":"d","payload":"x","after":1}',
]  # fmt: skip
"""Also MongoDB's, of which the row is a document in a string, and what would run into its neighbours."""
PARTS = [
    b"NaN", b"-NaN", b"Infinity", b"-Infinity", b"Inf", b"-Inf", b"+1", b"01", b"1.", b".5", b"-", b"1e400",
    b"0x1", b'"NaN"', b'"Infinity"', b"1" * 5_000, b"1e99999", b"nul", b"nan", b"None", b"True", b"[1,]",
    b"{,}", b"[1 2]", b'"Z\xfcrich"', b'"\xed\xa0\xbd"', b'"\\ud83d"', b'"\\ud83d\\ude00"', b'"\\x"',
    b'"\\u12"', b'"\t"', b'"\0"', b"'a'",
    *(b"[" * depth + b"]" * depth for depth in (MAX_NESTING - 2, MAX_NESTING - 1, MAX_NESTING + 1)),
    b"/* */ 1", b"1 // x", b"\xef\xbb\xbf1", b"\xc2\xa01", b'{"a":1,"a":2}', b"{1:2}", b'{"":{}}',
    b'"\xe2\x80\xa8"', *(b"[" * levels + b"]" * levels for levels in (900, 998, 1_000, 1_001, 3_000)),
    *(b'{"a":' * levels + b"1" + b"}" * levels for levels in (900, 1_001)),
]  # fmt: skip
"""What a part of an event may be that decides nothing, if it is JSON at all."""


def column(*values: bytes | None) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def rows_of(*values: bytes | None) -> Rows:
    offsets = np.arange(100, 100 + len(values))
    return Rows(offsets, offsets, column(*[b"k"] * len(values)), column(*values))


def expected_of(document: bytes) -> int:
    try:
        return int(DELETION if parse_event(document.decode()).row is None else SET)
    except ValueError:
        return int(INVALID)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(ENDS), min_size=1, max_size=60), st.integers(0, 20))
def test_verdicts_are_those_of_the_reader_whatever_the_neighbours_are(documents, start):
    start = min(start, len(documents) - 1)
    sliced = column(*documents)[start:]
    assert judge_json(sliced).tolist() == [expected_of(each) for each in documents[start:]]


@pytest.mark.parametrize("document", ENDS)
def test_each_document_is_judged_among_many_as_alone(document):
    many = [SETTING] * 40 + [document] + [DELETING] * 40
    assert judge_json(column(*many)).tolist() == [0] * 40 + [expected_of(document)] + [1] * 40


@pytest.mark.parametrize("part", PARTS, ids=lambda part: repr(part[:20]))
@pytest.mark.parametrize("event", [b'{"before":%b,"after":null,"op":"d"}', b'{"after":{"a":%b},"op":"u"}'])
def test_what_is_no_json_is_no_event_wherever_it_is_and_whatever_comes_with_it(event, part):
    document = event % part
    for count in (0, 15, 16, 60):
        found = judge_json(column(*[SETTING] * count, document))
        assert found.tolist() == [0] * count + [expected_of(document)]
    assert judge_json(column(*[document] * 20)).tolist() == [expected_of(document)] * 20


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from([SETTING, DELETING, b'{"schema":{"x":[1]},"payload":{"before":{"n":-1.5e3},"op":"d"}}']),
    st.lists(st.tuples(st.integers(0, 70), st.integers(0, 2), st.binary(max_size=4)), min_size=1, max_size=3),
)
def test_a_document_with_a_few_other_bytes_is_judged_among_many_as_alone(document, changes):
    for at, removed, added in changes:
        document = document[:at] + added + document[at + removed :]
    many = judge_json(column(*[SETTING] * 20, document, *[DELETING] * 20))
    assert many.tolist() == [0] * 20 + [expected_of(document)] + [1] * 20


def test_deep_nesting_is_parsed_without_recursion():
    deep = b'{"op":"c","after":{"a":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}}"
    assert judge_json(column(*[SETTING] * 20, deep)).tolist()[:20] == [0] * 20


def test_deletions_become_tombstones_and_the_rest_stays_as_it_is():
    framed = b"\0\0\0\0\7abc"
    given = rows_of(SETTING, DELETING, None, b"no", framed, b"", framed + b"d")

    def judge_framed(values):
        assert values.to_pylist() == [framed, framed + b"d"]
        return np.array([SET, DELETION], np.int8)

    applied = apply_events(given, judge_framed)
    assert applied.rows.values.to_pylist() == [SETTING, None, None, b"no", framed, b"", None]
    assert applied.invalid_offsets.tolist() == [103, 105]


def test_rows_without_deletions_are_not_copied():
    given = rows_of(SETTING, None, SETTING)
    assert apply_events(given, change_events.judge_json).rows.values is given.values


def test_empty_rows_have_no_events():
    applied = apply_events(rows_of(), change_events.judge_json)
    assert (len(applied.rows), len(applied.invalid_offsets)) == (0, 0)


def test_columns_of_a_row_do_not_decide():
    row = json.dumps({"op": "d", "__deleted": "true", "after": None, "payload": {"op": "d"}})
    event = f'{{"before": {row}, "after": {row}, "source": {row}, "op": "u"}}'.encode()
    assert judge_json(column(*[event] * 40)).tolist() == [0] * 40


def test_the_short_reading_of_events_says_what_the_long_one_does():
    def said(read: Callable[[str], RowEvent], text: str) -> RowEvent | None:
        try:
            return read(text)
        except ValueError:
            return None

    usual = 0
    for value in corpus():
        with contextlib.suppress(UnicodeDecodeError):
            text = value.data.decode()
            for event in (text, f'{{"before":null,"after":{text},"op":"u"}}', f'{{"payload":{text}}}'):
                assert said(read_event, event) == said(parse_event, event), value.name
                usual += change_events._usual_event(event) is not None
    assert usual > 400
