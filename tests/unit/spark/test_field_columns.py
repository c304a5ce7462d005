"""What the job finds in columns of values for the indexes of fields."""

import json
import re
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.fakes import FakeRegistry, FakeTime

from keylane.adapters.registry.decoders import RegistryDecoders
from keylane.errors import RegistryUnavailable
from keylane.formats.avro_writer import encoder
from keylane.formats.confluent import join
from keylane.formats.json_text import parse_verbatim
from keylane.model.records import Options
from keylane.state.field_index import indexes_of
from keylane.state.field_types import FIELD_TYPES
from keylane.state.ordered import NotOrdered
from keylane_spark.rows import fields
from keylane_spark.rows.fields import FEW_DOCUMENTS, Decoded, field_entries
from keylane_spark.rows.ordered_forms import forms_of
from keylane_spark.schemas.framed_values import FramedValues

OPTIONS = Options(index=1, fields=(("amount", "number"), ("status", "text")))


@pytest.fixture(autouse=True, scope="module")
def no_document_is_one_of_few():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fields, "FEW_DOCUMENTS", 0)
        yield


def entries_of(document) -> bytes:
    return indexes_of(OPTIONS).entries(parse_verbatim(json.dumps(document)))[0]


def column(*values, envelope="none"):
    options = Options(index=1, fields=OPTIONS.fields, envelope=envelope)
    entries, invalid = field_entries(pa.array(values, pa.binary()), options)
    return entries.to_pylist(), invalid


HOSTILE = {
    "a text of a megabyte": (b'{"status": "%b"}' % (b"x" * 1_000_000), 0),
    "10^400": (b'{"amount": 1e400}', 0),
    "a number beyond all indexes": (b'{"amount": 1e99999}', 1),
    "a million digits": (b'{"amount": %b}' % (b"1" * 1_000_000), 1),
    "NaN": (b'{"amount": NaN}', 1),
    "nested as deep as may be": (b'{"status": "open", "deep": %b}' % (b"[" * 499 + b"]" * 499), 0),
    "nested too deep": (b'{"status": "open", "deep": %b}' % (b"[" * 500 + b"]" * 500), 1),
    "many brackets, not deep": (b'{"status": "open", "wide": [%b]}' % b",".join([b"[{}]"] * 999), 0),
    "nested 100,000 deep": (b"[" * 100_000, 1),
    "invalid UTF-8": (b'{"status": "\xff"}', 1),
    "half a surrogate pair": (b'{"status": "\\ud800"}', 1),
    "another type": (b'{"status": 7, "amount": "open"}', 2),
    "no JSON": (b"open", 1),
    "no object": (b'["open"]', 0),
    "two documents": (b"{}{}", 1),
    "a byte 0 in a text": (b'{"status": "a\\u0000b"}', 0),
    "empty": (b"", 0),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_value_is_counted_and_spoils_no_neighbour(name):
    value, count = HOSTILE[name]
    before, after = {"amount": 1, "status": "open"}, {"status": "paid"}
    found, invalid = column(json.dumps(before).encode(), value, json.dumps(after).encode(), None)
    assert (found[0], found[2], found[3]) == (entries_of(before), entries_of(after), b"")
    assert invalid == count


def test_few_documents_have_the_entries_that_they_have_among_many(monkeypatch):
    monkeypatch.setattr(fields, "FEW_DOCUMENTS", FEW_DOCUMENTS)
    values = [value for value, _ in HOSTILE.values()]
    times = FEW_DOCUMENTS // len(values) + 1
    few, invalid_of_few = column(*values)
    many, invalid_of_many = column(*values * times)
    assert (many, invalid_of_many) == (few * times, invalid_of_few * times)


def test_of_change_events_the_row_has_the_fields():
    event = {"op": "u", "before": {"status": "void"}, "after": {"status": "open"}, "status": "event"}
    unwrapped = {"status": "open", "__deleted": "false"}
    framed = {"schema": {}, "payload": event}
    found, invalid = column(
        *(json.dumps(each).encode() for each in (event, unwrapped, framed)), envelope="debezium"
    )
    assert found == [entries_of({"status": "open"})] * 3
    assert invalid == 0
    assert column(b'{"op": "x"}', envelope="debezium") == ([b""], 1)


def test_values_of_a_registry_have_the_fields_that_readers_see():
    flight = {"type": "record", "name": "F", "fields": [{"name": "status", "type": "string"}]}
    opened = join(7, encoder(json.dumps(flight))({"status": "open"}))
    registry = FakeRegistry(s7=("AVRO", json.dumps(flight)), s9=("JSON", "{}"))
    decode = FramedValues(RegistryDecoders(registry), FakeTime().clock).decode
    paid, cut, plain = join(9, b'{"amount":1.50,"status":"paid"}'), opened[:-1], b'{"status":"void"}'
    values = pa.array([opened, None, paid, cut, plain, join(8, b""), b"", b"\0"], pa.binary())
    entries, invalid = field_entries(values, replace(OPTIONS, value_format="registry"), decode)
    assert entries.to_pylist() == [
        entries_of({"status": "open"}),
        b"",
        entries_of({"amount": 1.5, "status": "paid"}),
        *[b""] * 5,
    ]
    assert invalid == 4, "one cut off, one without a schema, one of an unknown schema, and a byte alone"


def test_of_events_of_a_registry_the_row_has_the_fields_and_those_in_protobuf_have_none():
    event = b'{"op":"c","after":{"status":"open"}}'
    options = replace(OPTIONS, value_format="registry", envelope="debezium")
    asked = []

    def decode(values, *, are_events):
        asked.append(are_events)
        found = [None if value.startswith(b"\0p") else value for value in values.to_pylist()]
        return Decoded(found, [None] * len(found))

    entries, invalid = field_entries(pa.array([event, b"\0p"], pa.binary()), options, decode)
    assert (entries.to_pylist(), invalid, asked) == ([entries_of({"status": "open"}), b""], 1, [True])


AT_MS = 1793491200123
TYPED = {
    "io.debezium.time.MicroTimestamp": f"{AT_MS}000",
    "io.debezium.time.NanoTimestamp": f"{AT_MS}000000",
    "io.debezium.time.Timestamp": f"{AT_MS}",
    "org.apache.kafka.connect.data.Timestamp": f"{AT_MS}",
    "io.debezium.time.ZonedTimestamp": '"2026-11-01T00:00:00.123Z"',
}
AT = replace(
    OPTIONS, fields=(("at", "time"), ("in.at", "time"), ("on", "time"), ("status", "text")), indexes=()
)
AT_ROW = f'{{"at":{AT_MS},"in":{{"at":{AT_MS}}},"on":1793491200000,"status":"open"}}'


def connect_schema(name: str) -> dict:
    at = {"type": "int64", "optional": True, "name": name, "field": "at"}
    inner = {"type": "struct", "fields": [at], "field": "in", "optional": True}
    fields = [at, inner, {"type": "int32", "name": "io.debezium.time.Date", "field": "on"}]
    return {"type": "struct", "fields": [*fields, {"type": "string", "field": "status"}], "field": "after"}


def a_record(record: str, **fields: object) -> dict:
    """The schema of a record in Avro."""
    return {"type": "record", "name": record, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def rows_of(value: str) -> str:
    return f'{{"at":{value},"in":{{"at":{value}}},"on":20758,"status":"open"}}'


def expected_at(options: Options = AT) -> bytes:
    return indexes_of(options).entries(parse_verbatim(AT_ROW))[0]


@pytest.mark.parametrize("few", [0, FEW_DOCUMENTS])
def test_a_number_is_the_time_that_the_schema_beside_it_says(few, monkeypatch):
    monkeypatch.setattr(fields, "FEW_DOCUMENTS", few)
    events, plain = [], []
    for name, value in TYPED.items():
        envelope = {"type": "struct", "fields": [connect_schema(name)]}
        event = f'{{"after":{rows_of(value)},"op":"u"}}'
        events.append(f'{{"schema":{json.dumps(envelope)},"payload":{event}}}'.encode())
        flat = connect_schema(name)
        flat["fields"].append({"type": "string", "field": "__deleted"})
        row = rows_of(value).replace("}}", '},"__deleted":"false"}', 0)[:-1] + ',"__deleted":"false"}'
        events.append(f'{{"schema":{json.dumps(flat)},"payload":{row}}}'.encode())
        plain.append(f'{{"schema":{json.dumps(connect_schema(name))},"payload":{rows_of(value)}}}'.encode())
    options = replace(AT, envelope="debezium")
    found, invalid = field_entries(pa.array([*events, None, b"no"], pa.binary()), options)
    assert (found.to_pylist(), invalid) == ([expected_at()] * len(events) + [b""] * 2, 1)
    options = replace(AT, fields=tuple((f"payload.{name}", kind) for name, kind in AT.fields))
    found, invalid = field_entries(pa.array([*plain, b"no"], pa.binary()), options)
    assert (found.to_pylist(), invalid) == ([expected_at()] * len(plain) + [b""], 1)


def test_a_number_is_the_time_that_its_schema_of_a_registry_says():
    name, value = "io.debezium.time.MicroTimestamp", f"{AT_MS}000"
    at = {"type": "long", "connect.version": 1, "connect.name": name}
    days = {"type": "int", "connect.name": "io.debezium.time.Date"}
    row = a_record(
        "Value", at=at, **{"in": a_record("In", at=["null", at])}, on=["null", days], status="string"
    )
    envelope = a_record("Envelope", before=["null", row], after=["null", "Value"], op="string")
    envelope["namespace"] = "a.b"
    number = {"type": "integer", "title": name}
    properties = {
        "at": {"oneOf": [{"type": "null"}, number]},
        "in": {"type": "object", "properties": {"at": number}},
        "on": {"type": "integer", "title": "io.debezium.time.Date"},
    }
    document = json.loads(rows_of(value))
    registry = FakeRegistry(
        s7=("AVRO", json.dumps(envelope)),
        s8=("AVRO", json.dumps(row)),
        s9=("JSON", json.dumps({"properties": properties})),
    )
    decode = FramedValues(RegistryDecoders(registry), FakeTime().clock).decode
    options = replace(AT, value_format="registry")
    after = {"a.b.Value": document | {"in": {"at": {"long": int(value)}}, "on": {"int": 20758}}}
    event = join(7, encoder(json.dumps(envelope))({"before": None, "after": after, "op": "c"}))
    found, invalid = field_entries(
        pa.array([event], pa.binary()), replace(options, envelope="debezium"), decode
    )
    assert (found.to_pylist(), invalid) == ([expected_at()], 0)
    framed = [join(9, rows_of(value).encode()), join(8, event[5 + 2 : -2])]
    found, invalid = field_entries(pa.array(framed, pa.binary()), options, decode)
    assert (found.to_pylist(), invalid) == ([expected_at()] * 2, 0)


@pytest.mark.parametrize("few", [0, FEW_DOCUMENTS])
@pytest.mark.parametrize(
    ("kind", "value", "ms"),
    [
        ("time_s", "1793491200", "1793491200000"), ("time_s", "-1", "-1000"),
        ("time_us", f"{AT_MS}000", f"{AT_MS}"), ("time_us", f'"{AT_MS}001"', f"{AT_MS}.001"),
        ("time_us", "0", "0"), ("time_ns", f"{AT_MS}000001", f"{AT_MS}.000001"),
        ("time_days", "20758", "1793491200000"), ("time_days", "-1", "-86400000"),
        ("time_us", '"2026-11-01T00:00:00.123Z"', f"{AT_MS}"),
    ],
)  # fmt: skip
def test_a_time_in_another_unit_has_the_form_of_its_milliseconds(kind, value, ms, few, monkeypatch):
    monkeypatch.setattr(fields, "FEW_DOCUMENTS", few)
    options = replace(OPTIONS, fields=(("at", kind),), indexes=())
    found, invalid = field_entries(pa.array([b'{"at":%b}' % value.encode()], pa.binary()), options)
    expected = indexes_of(replace(options, fields=(("at", "time"),))).entries(
        parse_verbatim(f'{{"at":{ms}}}')
    )
    assert (found[0].as_py(), invalid) == expected


def test_a_registry_that_is_away_is_no_value_without_fields():
    registry = FakeRegistry(s7=RegistryUnavailable("away"))
    decode = FramedValues(RegistryDecoders(registry), FakeTime().clock).decode
    options = replace(OPTIONS, value_format="registry")
    for _ in range(2):
        with pytest.raises(RegistryUnavailable, match="schema 7: away"):
            field_entries(pa.array([join(7, b"")], pa.binary()), options, decode)
    assert registry.asked == [7]


NAMES = st.sampled_from(["a", "b", "c", "a.b", "\u00e9", "field_0"])
SPELLED = st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
TIMES = st.datetimes().map(lambda when: when.isoformat()) | st.from_regex(
    r"[0-3][0-9]{3}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,7})?"
    r"(Z|[+-][0-2][0-9]:[0-6][0-9])?",
    fullmatch=True,
)
TEXTS = st.text(max_size=70) | st.sampled_from(
    ["x" * 64, "x" * 65, "\u00e9" * 32, "\u00e9" * 33, "a\\b", 'a"b']
)
SCALARS = (
    st.none()
    | st.booleans()
    | SPELLED.map("#{}#".format)
    | SPELLED
    | TIMES
    | TEXTS
    | st.integers()
    | st.floats(allow_nan=False)
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(NAMES, below, max_size=4),
    max_leaves=12,
)
PATHS = st.lists(
    st.sampled_from(["a", "b", "c", "a.b", "a.b.c", "a.c", "b.a", "\u00e9", "field_0"]),
    min_size=1,
    max_size=4,
    unique=True,
)


@st.composite
def all_options(draw):
    fields = sorted((name, draw(st.sampled_from(list(FIELD_TYPES)))) for name in draw(PATHS))
    names = st.lists(st.sampled_from([name for name, _ in fields]), min_size=1, max_size=3, unique=True)
    indexes = tuple((f"together_{number}", tuple(draw(names))) for number in range(draw(st.integers(0, 2))))
    return Options(index=1, fields=tuple(fields), indexes=indexes)


@st.composite
def all_values(draw):
    """JSON, as it is spelled in one way or another, and what is nearly JSON."""
    document = draw(st.dictionaries(NAMES, DOCUMENTS, max_size=4) | DOCUMENTS)
    value = json.dumps(document, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
    data = re.sub('"#([^"#]*)#"', r"\1", value).encode(errors="surrogatepass")
    if draw(st.integers(0, 5)):
        return data
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(st.binary(max_size=2)) + data[at + draw(st.integers(0, 2)) :]


def entries_alone(value, options):
    if not value:
        return b"", 0
    try:
        return indexes_of(options).entries(parse_verbatim(value.decode()))
    except ValueError:
        return b"", 1


TWO_TEXTS = Options(index=1, fields=(("a", "texts"), ("b", "text")), indexes=(("together", ("a", "b")),))


@given(all_options(), st.lists(st.none() | all_values(), max_size=6))
@example(TWO_TEXTS, [b'{"a": ["y", "x"], "b": "z"}', b'{"a": "y", "b": "z"}', b'{"a": "y"}'])
def test_columns_find_in_a_value_what_its_parsed_document_has(options, values):
    found, invalid = field_entries(pa.array(values, pa.binary()), options)
    expected = [entries_alone(value, options) for value in values]
    assert found.to_pylist() == [entries for entries, _ in expected]
    assert invalid == sum(count for _, count in expected)


def test_entries_that_no_envelope_has_room_for_are_none_and_spoil_no_neighbour():
    many = [f"{number:02}" + "x" * 60 for number in range(64)]
    options = Options(index=1, fields=tuple((f"tags{number:02}", "texts") for number in range(17)))
    large = json.dumps({name: many for name, _ in options.fields}).encode()
    small = b'{"tags00": ["a", "b"], "tags01": 7}'
    found, invalid = field_entries(pa.array([small, large, small], pa.binary()), options)
    assert found.to_pylist() == [b"\0\1a\0\1b", b"", b"\0\1a\0\1b"]
    assert invalid == 1 + 17 + 1


def form_alone(kind, spelled):
    try:
        return FIELD_TYPES[kind].encode(json.loads(spelled) if spelled.startswith('"') else spelled)
    except NotOrdered:
        return None


@given(st.lists(SPELLED | SPELLED.map(json.dumps) | st.integers().map(str) | st.just("null")))
@example(["-0", "0.00", "10", "1.0", "-1", "99999999999999999", "0.0000000000000001", "-0.01", '"007"'])
def test_numbers_have_by_columns_the_form_that_one_alone_has(spelled):
    found = forms_of("number", pa.array([each.encode() for each in spelled], pa.binary())).to_pylist()
    for form, each in zip(found, spelled, strict=True):
        assert form in {None, form_alone("number", each)}, each
        is_plain = each.strip('"-').replace(".", "", 1).isdigit() and len(each) <= 18
        assert (form is not None) is is_plain, each


@given(st.lists(TIMES.map(json.dumps) | st.integers(-(10**13), 10**13).map(str)))
@example(['"1969-12-31T23:59:59.999Z"', '"2026-02-28 10:00:00+02:00"', '"2026-11-27T10:00:00.5"', "0"])
def test_times_have_by_columns_the_form_that_one_alone_has(spelled):
    found = forms_of("time", pa.array([each.encode() for each in spelled], pa.binary())).to_pylist()
    for form, each in zip(found, spelled, strict=True):
        assert form in {None, form_alone("time", each)}, each
        assert form is not None or each.startswith('"'), "a number is not looked at alone"


def test_a_time_that_is_none_leaves_its_neighbours_to_be_looked_at_alone():
    good, bad = b'"2026-02-28T10:00:00Z"', b'"2026-02-30T10:00:00Z"'
    assert forms_of("time", pa.array([good], pa.binary())).null_count == 0
    assert forms_of("time", pa.array([good, bad, b"7"], pa.binary())).is_null().to_pylist() == [
        True,
        True,
        False,
    ]
    options = Options(index=1, fields=(("placed", "time"),))
    found, invalid = field_entries(
        pa.array([b'{"placed":%b}' % each for each in (good, bad, b"7")], pa.binary()), options
    )
    assert [bool(entries) for entries in found.to_pylist()] == [True, False, True]
    assert invalid == 1


@given(st.lists(TEXTS))
def test_texts_have_by_columns_the_form_that_one_alone_has(texts):
    spelled = [json.dumps(text, ensure_ascii=False) for text in texts]
    found = forms_of("text", pa.array([each.encode() for each in spelled], pa.binary())).to_pylist()
    for form, each, text in zip(found, spelled, texts, strict=True):
        assert form in {None, form_alone("text", each)}, each
        assert (form is not None) is ("\\" not in each and len(text.encode()) <= 64), each
