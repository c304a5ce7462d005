"""What the job finds in columns of values for the indexes of fields."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.support.fakes import FakeRegistry, FakeTime

from keylane.adapters.registry.decoders import RegistryDecoders
from keylane.errors import RegistryUnavailable
from keylane.formats.avro_writer import encoder
from keylane.formats.confluent import join
from keylane.formats.json_text import parse_verbatim
from keylane.model.records import Options
from keylane.state.field_index import indexes_of
from keylane_spark.adapters.framed_values import FramedValues
from keylane_spark.columns.fields import field_entries

OPTIONS = Options(index=1, fields=(("amount", "number"), ("status", "text")))


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
    "nested 1,000 deep": (b'{"status": "open", "deep": %b}' % (b"[" * 999 + b"]" * 999), 0),
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
        return [None if value.startswith(b"\0p") else value for value in values.to_pylist()]

    entries, invalid = field_entries(pa.array([event, b"\0p"], pa.binary()), options, decode)
    assert (entries.to_pylist(), invalid, asked) == ([entries_of({"status": "open"}), b""], 1, [True])


def test_a_registry_that_is_away_is_no_value_without_fields():
    registry = FakeRegistry(s7=RegistryUnavailable("away"))
    decode = FramedValues(RegistryDecoders(registry), FakeTime().clock).decode
    options = replace(OPTIONS, value_format="registry")
    for _ in range(2):
        with pytest.raises(RegistryUnavailable, match="schema 7: away"):
            field_entries(pa.array([join(7, b"")], pa.binary()), options, decode)
    assert registry.asked == [7]
