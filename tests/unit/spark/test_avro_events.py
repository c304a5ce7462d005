"""Change events in Avro as columns, against fastavro's encoding and the reader of readers."""

from __future__ import annotations

import io
import json

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.fakes import FakeRegistry, FakeTime

from keylane.errors import RegistryUnavailable
from keylane.formats import avro_reader
from keylane.formats.avro_primitives import MOST_LEVELS
from keylane.formats.confluent import join
from keylane_spark.rows.change_events import DELETION, INVALID, SET
from keylane_spark.schemas import avro_events, event_schemas
from keylane_spark.schemas.avro_cursors import Cursors, compile_skip
from keylane_spark.schemas.avro_events import AvroEvents
from keylane_spark.schemas.event_schemas import EventSchemas, framed_judge


def a_record(record: str = "", **fields: object) -> dict:
    """The schema of a record, by default named after its fields; null is the default of what may be null."""
    named = [
        {"name": name, "type": kind} | ({"default": None} if isinstance(kind, list) else {})
        for name, kind in fields.items()
    ]
    return {"type": "record", "name": record or f"R{'_'.join(fields)}", "fields": named}


MAYBE_TEXT, MAYBE_FLAG = ["null", "string"], ["null", "boolean"]
ROW = a_record(
    "Value",
    id="long",
    name=MAYBE_TEXT,
    ok=MAYBE_FLAG,
    price=["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
    mass=["null", "double", "float"],
    tags={"type": "array", "items": MAYBE_TEXT},
    sizes={"type": "map", "values": "int"},
    kind={"type": "enum", "name": "Kind", "symbols": ["a", "b"]},
    code={"type": "fixed", "name": "Code", "size": 3},
)
ENVELOPE = a_record(
    "Envelope",
    before=["null", ROW],
    after=["null", "Value"],
    source=a_record("Source", db="string"),
    transaction=MAYBE_TEXT,
    op="string",
    ts_ms=["null", "long"],
) | {"namespace": "shop.public.items"}
FLAT = a_record("Row", op="string", __deleted=MAYBE_TEXT)
A_ROW = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(max_size=200),
        "ok": st.none() | st.booleans(),
        "price": st.none() | st.decimals(0, 1000, places=2),
        "mass": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "tags": st.lists(st.none() | st.text(max_size=3), max_size=4),
        "sizes": st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=3),
        "kind": st.sampled_from("ab"),
        "code": st.binary(min_size=3, max_size=3),
    }
)
AN_EVENT = st.fixed_dictionaries(
    {
        "before": st.none() | A_ROW,
        "after": st.none() | A_ROW,
        "source": st.fixed_dictionaries({"db": st.text(max_size=20)}),
        "transaction": st.none() | st.text(max_size=3),
        "op": st.sampled_from(["c", "u", "r", "d", "t", "", "a long operation that is none"]),
        "ts_ms": st.none() | st.integers(0, 2**50),
    }
)
SOME_ROW = {
    "id": 1,
    "name": "ann",
    "ok": True,
    "price": None,
    "mass": 1.5,
    "tags": [None, "x"],
    "sizes": {"a": 1},
}
SOME_ROW |= {"kind": "b", "code": b"abc"}


def encode(schema: dict, value: dict, schema_id: int = 7) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return join(schema_id, out.getvalue())


def event(operation: str, **fields) -> bytes:
    row = None if operation == "d" else SOME_ROW
    value = {"before": SOME_ROW, "after": row, "source": {"db": "shop"}, "op": operation, "ts_ms": 5}
    return encode(ENVELOPE, {"transaction": None} | value | fields)


def column(*values: bytes) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def expected_of(value: dict) -> int:
    if value["op"] == "d":
        return int(DELETION)
    return int(SET if value["op"] in ("c", "u", "r") and value["after"] is not None else INVALID)


@settings(deadline=None, max_examples=80)
@given(st.lists(AN_EVENT, min_size=1, max_size=20), st.integers(0, 5))
def test_whatever_fastavro_writes_is_judged_by_its_op(values, start):
    events = AvroEvents(json.dumps(ENVELOPE))
    start = min(start, len(values) - 1)
    sliced = column(*[encode(ENVELOPE, value) for value in values])[start:]
    assert events.judge(sliced).tolist() == [expected_of(value) for value in values[start:]]
    many = column(*[encode(ENVELOPE, value) for value in values[start:]] * 20)
    assert events.judge(many).tolist() == [expected_of(value) for value in values[start:]] * 20


def test_complete_events_are_not_read_one_by_one(monkeypatch):
    monkeypatch.setattr(avro_events, "judge_each", None)
    events = AvroEvents(json.dumps(ENVELOPE))
    values = [event("c"), event("d"), event("r"), event("t")] * 5
    assert events.judge(column(*values)).tolist() == [0, 1, 0, 2] * 5


@pytest.mark.parametrize("left", range(0, 50, 3))
def test_an_event_that_is_cut_off_or_longer_than_its_schema_is_none(left):
    events, whole = AvroEvents(json.dumps(ENVELOPE)), event("d")
    assert left < len(whole)
    cut = [whole[:left], whole + b"x", whole]
    for times in (1, 10):
        assert events.judge(column(*cut * times)).tolist() == [INVALID, INVALID, DELETION] * times


def test_an_unwrapped_event_is_judged_by_deleted_and_not_by_a_column_called_op():
    events = AvroEvents(json.dumps(FLAT))
    rows = [
        {"op": "d", "__deleted": "false"},
        {"op": "c", "__deleted": "true"},
        {"op": "c", "__deleted": None},
    ]
    for times in (1, 10):
        values = [encode(FLAT, row) for row in rows] * times
        assert events.judge(column(*values)).tolist() == [SET, DELETION, INVALID] * times


@pytest.mark.parametrize("text", ["string", {"type": "string", "connect.name": "io.debezium.data.Json"}])
def test_a_document_of_mongodb_is_judged_by_what_it_is(text):
    schema = a_record(after=["null", text], op="string")
    values = [("{}", "c"), ("[]", "u"), ('{"a":', "r"), (None, "u"), (None, "d"), ("{}", "d")]
    encoded = [encode(schema, {"after": after, "op": op}) for after, op in values]
    for times in (1, 10):
        found = AvroEvents(json.dumps(schema)).judge(column(*encoded * times))
        assert found.tolist() == [SET, INVALID, INVALID, INVALID, DELETION, DELETION] * times


@pytest.mark.parametrize(
    "schema", ['"string"', '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}']
)
def test_a_schema_without_op_has_no_events(schema):
    assert AvroEvents(schema).judge(column(event("c"))).tolist() == [INVALID]


OP = {"type": "enum", "name": "Op", "symbols": ["c", "d", "x"]}
EMPTY_ROW = {"type": "record", "name": "Empty", "fields": []}
FORMS = {
    "deleted": (
        a_record(id="int", __deleted=MAYBE_TEXT),
        [{"id": 1, "__deleted": each} for each in ("true", "false", "TRUE", "False", "", "x" * 40, None)],
    ),
    "deleted and op": (
        a_record(after=["null", ROW], op=MAYBE_TEXT, __deleted=MAYBE_FLAG),
        [
            {"after": SOME_ROW, "op": op, "__deleted": flag}
            for op in ("c", "d", None)
            for flag in (True, False, None)
        ],
    ),
    "a type with a name": (
        a_record(kind=OP, after=["null", ROW], op="Op"),
        [{"kind": "x", "after": SOME_ROW, "op": op} for op in "cdx"],
    ),
    "rows without bytes": (
        a_record(after=["null", EMPTY_ROW], op="string"),
        [{"after": {}, "op": "c"}, {"after": None, "op": "c"}, {"after": None, "op": "d"}],
    ),
    "a payload": (
        a_record(schema="null", payload=a_record(after=["null", ROW], op="string")),
        [{"schema": None, "payload": {"after": SOME_ROW, "op": op}} for op in "cdx"],
    ),
    "a payload or op": (
        a_record(op=MAYBE_TEXT, payload=["null", a_record(after=["null", ROW], op="string")]),
        [{"op": None, "payload": {"after": None, "op": "d"}}, {"op": "d", "payload": None}],
    ),
    "a union": (
        [EMPTY_ROW, ENVELOPE],
        [("shop.public.items.Envelope", {"op": "d", "source": {"db": ""}, "ts_ms": 1})],
    ),
}


@pytest.mark.parametrize(("schema", "values"), FORMS.values(), ids=FORMS)
def test_one_verdict_whatever_comes_together_that_of_reads(schema, values):
    text = json.dumps(schema)
    read = avro_reader.decoder(text)
    encoded = [encode(json.loads(text), value) for value in values]
    expected = avro_events.judge_each(column(*encoded), lambda value: read(value[5:])).tolist()
    for times in (1, 20):
        assert AvroEvents(text).judge(column(*encoded * times)).tolist() == expected * times


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30))
def test_any_bytes_are_judged_as_the_reader_judges_them(values):
    events = AvroEvents(json.dumps(ENVELOPE))
    framed = [join(7, value) for value in values] * 20
    one_by_one = avro_events.judge_each(column(*framed), lambda value: events._decode(value[5:]))
    assert events.judge(column(*framed)).tolist() == one_by_one.tolist()
    cursors = Cursors(column(*values), 0)
    compile_skip(json.dumps(ENVELOPE), ())(cursors, np.arange(len(values)))
    assert (cursors.at <= cursors.ends).all()


def test_a_block_that_claims_a_billion_empty_items_ends_soon():
    schema = {"type": "array", "items": "null"}
    cursors = Cursors(column(b"\x80\x94\xeb\xdc\x03\0"), 0)
    compile_skip(json.dumps(schema), ())(cursors, np.arange(1))
    assert cursors.lost.tolist() == [True]


def test_a_size_below_zero_moves_no_cursor_back():
    cursors = Cursors(column(b"\2\2\7", b"\2\2\2x"), 0)
    compile_skip(json.dumps(a_record(a="int", b="int", c="string")), ())(cursors, np.arange(2))
    assert (cursors.lost.tolist(), cursors.at.tolist()) == ([True, False], [3, 7])


def test_a_block_with_its_size_is_left_to_the_reader():
    schema = {"type": "array", "items": "string"}
    cursors = Cursors(column(b"\x03\x08\x02a\x02b\0"), 0)
    compile_skip(json.dumps(schema), ())(cursors, np.arange(1))
    assert cursors.lost.tolist() == [True]


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from("cudt"),
    st.lists(st.tuples(st.integers(5, 90), st.integers(0, 2), st.binary(max_size=3)), min_size=1, max_size=2),
)
def test_an_event_with_a_few_other_bytes_is_judged_among_many_as_alone(op, changes):
    events, value = AvroEvents(json.dumps(ENVELOPE)), event(op)
    for at, removed, added in changes:
        value = value[:at] + added + value[at + removed :]
    alone = events.judge(column(value)).tolist()
    assert events.judge(column(*[event("c")] * 20, value)).tolist()[-1:] == alone


@pytest.mark.parametrize("levels", [1, 40, 60, 399, 401, 1_000, 100_000])
def test_a_value_that_is_nested_in_itself_is_judged_among_many_as_alone(levels):
    node = a_record("Node", next=["null", "Node"])
    events = AvroEvents(json.dumps(a_record(after=node, op="string")))
    value = join(7, b"\2" * (levels - 2) + b"\0" + b"\2c") if levels > 1 else join(7, b"\0\2c")
    wanted = SET if levels < MOST_LEVELS else INVALID
    assert events.judge(column(value)).tolist() == [wanted]
    assert events.judge(column(*[value] * 20)).tolist() == [wanted] * 20


def test_each_value_is_judged_by_its_own_schema():
    document = b'{"op":"d"}'
    registry = FakeRegistry(
        s7=("AVRO", json.dumps(ENVELOPE)),
        s8=("AVRO", json.dumps(FLAT)),
        s9=("JSON", "{}"),
        s10=("PROTOBUF", ""),
    )
    judge = EventSchemas(registry, FakeTime().clock).judge
    values = [event("c"), encode(FLAT, {"op": "", "__deleted": "true"}, 8), event("d"), join(9, document)]
    values += [join(10, document), join(11, document), b"\0abc", event("c")]
    expected = [SET, DELETION, DELETION, DELETION, INVALID, INVALID, INVALID, SET]
    assert judge(column(*values)).tolist() == expected
    assert registry.asked == [7, 8, 9, 10, 11]


def test_events_of_json_schemas_are_judged_whatever_their_lengths():
    judge = EventSchemas(FakeRegistry(s9=("JSON", "{}")), FakeTime().clock).judge
    documents = [b'{"op":"d"}', b'{"op":"u","after":{"id":1}}'] * 20
    assert judge(column(*(join(9, each) for each in documents))).tolist() == [DELETION, SET] * 20


def test_a_schema_is_read_once_and_one_that_is_missing_not_again_for_a_while():
    registry, time = FakeRegistry(s7=("AVRO", json.dumps(ENVELOPE))), FakeTime()
    judge = EventSchemas(registry, time.clock).judge
    for _ in range(3):
        judge(column(event("c"), join(8, b"")))
    assert registry.asked == [7, 8]
    time.move(event_schemas.UNKNOWN_S)
    judge(column(event("c"), join(8, b"")))
    assert registry.asked == [7, 8, 8]


def test_a_registry_that_does_not_answer_is_no_verdict():
    judge = EventSchemas(FakeRegistry(s7=RegistryUnavailable("away")), FakeTime().clock).judge
    with pytest.raises(RegistryUnavailable):
        judge(column(event("c")))


def test_without_a_registry_no_framed_value_is_an_event():
    assert framed_judge(None)(column(event("c"))).tolist() == [INVALID]
