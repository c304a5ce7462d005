"""Values as their topic's format says, with a registry that is a table."""

from __future__ import annotations

import json

import pytest
from tests.support.builders import a_layout
from tests.support.fakes import FakeTime

from keylane.api.http import preferences
from keylane.api.reads.envelope import Envelopes
from keylane.errors import BadConfig, RegistryUnavailable, ValueNotDecodable
from keylane.formats.confluent import join
from keylane.model.records import HistoryEntry, Options, Position, Record
from keylane.ports import Decoder, WaitBudget
from keylane.query.decoding import ValueDecoder

TEXT = Decoder("AVRO", lambda payload: json.dumps(payload.decode()))


class FakeSchemas:
    """What it holds by id: a decoder, or what it raises; it records what it was asked for."""

    def __init__(self, **held: Decoder | Exception) -> None:
        self.held = {int(name[1:]): found for name, found in held.items()}
        self.asked: list[tuple[int, float]] = []

    def decoder(self, schema_id, deadline):
        self.asked.append((schema_id, deadline.remaining_s))
        found = self.held.get(schema_id, ValueError("the Schema Registry does not have it"))
        if isinstance(found, Exception):
            raise found
        return found


def decoder_of(schemas, *, as_bytes: bool = False) -> ValueDecoder:
    return ValueDecoder(lambda: schemas, WaitBudget(2_000, FakeTime().clock), as_bytes=as_bytes)


def a_record(value: bytes, **fields) -> Record:
    return Record(b"k", value, 3, 42, 0, **fields)


def layout_of(value_format: str):
    return a_layout(options=Options(value_format=value_format))


def test_registry_value_becomes_json_and_names_its_schema():
    record = decoder_of(FakeSchemas(s7=TEXT)).decode(layout_of("registry"), a_record(join(7, b"a")))
    assert record.value == b'"a"'
    assert record.form
    assert (record.form.name, record.form.schema_id, record.form.schema_type) == ("json", 7, "AVRO")


def test_each_schema_is_asked_for_once_a_request_within_one_deadline():
    schemas = FakeSchemas(s7=TEXT, s8=RegistryUnavailable("away"))
    decoder = decoder_of(schemas)
    for schema_id in (7, 8, 7, 8, 9, 9):
        decoder.decode_or_explain(layout_of("registry"), a_record(join(schema_id, b"a")))
    assert schemas.asked == [(7, 2.0), (8, 2.0), (9, 2.0)]


@pytest.mark.parametrize(
    ("value", "schema_id", "why"),
    [
        (b"plain", None, "does not begin with"),
        (join(9, b"a"), 9, "does not have it"),
        (join(7, b"\xff"), 7, "utf-8"),
    ],
)
def test_value_that_can_not_be_decoded_is_refused_alone_and_shown_among_others(value, schema_id, why):
    decoder, layout = decoder_of(FakeSchemas(s7=TEXT)), layout_of("registry")
    with pytest.raises(ValueNotDecodable, match=why) as refused:
        decoder.decode(layout, a_record(value))
    assert (refused.value.position, refused.value.schema_id) == ("3:42", schema_id)
    shown = decoder.decode_or_explain(layout, a_record(value))
    assert shown.value == value
    assert shown.form
    assert (shown.form.name, shown.form.schema_id) == ("base64", schema_id)
    assert why in (shown.form.undecoded or "")


@pytest.mark.parametrize("error", [RegistryUnavailable("away"), BadConfig("KEYLANE_X is not set")])
def test_values_without_their_registry_are_shown_as_bytes_and_no_setting_is_revealed(error, caplog):
    decoder, layout = decoder_of(FakeSchemas(s7=error)), layout_of("registry")
    with pytest.raises(type(error)):
        decoder.decode(layout, a_record(join(7, b"a")))
    form = decoder.decode_or_explain(layout, a_record(join(7, b"a"))).form
    assert form
    assert form.undecoded in {"away", "no Schema Registry is configured"}
    decoder.decode_or_explain(layout, a_record(join(7, b"a")))
    assert [line.getMessage().split("; cause")[0] for line in caplog.records] == [
        f"values are shown as bytes: {error}"
    ]


@pytest.mark.parametrize("value_format", ["auto", "json", "text", "bytes", "registry"])
def test_client_that_asks_for_bytes_gets_them_and_no_registry_is_asked(value_format):
    schemas = FakeSchemas(s7=TEXT)
    record = decoder_of(schemas, as_bytes=True).decode(layout_of(value_format), a_record(join(7, b"a")))
    assert record.value == join(7, b"a")
    assert record.form
    assert record.form.name == "base64"
    assert not schemas.asked


@pytest.mark.parametrize(
    ("value_format", "value", "name"),
    [
        ("json", b'{"a": 1}', "json"),
        ("text", b'{"a": 1}', "text"),
        ("bytes", b'{"a": 1}', "base64"),
        ("auto", b'{"a": 1}', None),
        ("of a newer writer", b'{"a": 1}', None),
    ],
)
def test_plain_values_are_what_their_topic_says(value_format, value, name):
    record = decoder_of(FakeSchemas()).decode(layout_of(value_format), a_record(value))
    assert (record.form.name if record.form else None) == name
    assert record.value == value


@pytest.mark.parametrize(("value_format", "value"), [("json", b"NaN"), ("json", b"\xff"), ("text", b"\xff")])
def test_plain_value_of_another_kind_than_its_topics_is_refused(value_format, value):
    with pytest.raises(ValueNotDecodable, match="it is no"):
        decoder_of(FakeSchemas()).decode(layout_of(value_format), a_record(value))


@pytest.mark.parametrize("value_format", ["json", "text", "registry"])
def test_value_that_is_left_in_kafka_is_not_looked_at(value_format):
    record = a_record(b"", left_in_kafka_bytes=5_000_000)
    assert decoder_of(FakeSchemas()).decode(layout_of(value_format), record) == record


def test_entries_of_a_history_are_decoded_but_tombstones():
    envelopes = Envelopes(0, None, decoder_of(FakeSchemas(s7=TEXT)))
    tombstone = HistoryEntry(Position(3, 43), 0, None)
    entry = HistoryEntry(Position(3, 42), 0, a_record(join(7, b"a")))
    assert json.loads(envelopes.render_entry(layout_of("registry"), tombstone))["deleted"] is True
    assert json.loads(envelopes.render_entry(layout_of("registry"), entry))["value"] == "a"


@pytest.mark.parametrize(
    ("accept", "is_bytes"),
    [
        (None, False),
        ("*/*", False),
        ("application/json", False),
        ("application/octet-stream", True),
        ("Application/Octet-Stream, */*;q=0.1", True),
        ("application/json, application/octet-stream", False),
        ("application/json;q=0.5, application/octet-stream;q=0.8", True),
        ("application/json;q=0.8, application/octet-stream;q=0.5", False),
        ("application/octet-stream;q=0", False),
        ("application/octet-stream;q=nonsense", True),
        ("application/octet-streams", False),
    ],
)
def test_bytes_are_asked_for_by_name_and_weight(accept, is_bytes):
    assert preferences.prefers_bytes(accept) is is_bytes


EVENT = '{"before": null, "after": {"id": 1, "price": 1.50}, "op": "u"}'


def events_layout(value_format: str = "auto"):
    return a_layout(options=Options(value_format=value_format, envelope="debezium"))


@pytest.mark.parametrize("value_format", ["auto", "json"])
def test_a_change_event_decodes_to_its_row(value_format):
    decoder = decoder_of(FakeSchemas())
    layout = events_layout(value_format)
    record = decoder.decode(layout, a_record(EVENT.encode()))
    assert (record.value, record.form and record.form.name) == (b'{"id": 1, "price": 1.50}', "json")
    assert not decoder.keeps_values(layout)


def test_a_change_event_of_a_schema_decodes_to_its_row_and_names_the_schema():
    schemas = FakeSchemas(s7=Decoder("AVRO", lambda _: EVENT), s8=Decoder("PROTOBUF", lambda _: EVENT))
    record = decoder_of(schemas).decode(events_layout("registry"), a_record(join(7, b"")))
    assert record.value == b'{"id": 1, "price": 1.50}'
    assert record.form
    assert (record.form.schema_id, record.form.schema_type) == (7, "AVRO")
    with pytest.raises(ValueNotDecodable, match="by schema 8: change events in Protobuf are not supported"):
        decoder_of(schemas).decode(events_layout("registry"), a_record(join(8, b"")))


def test_who_wants_the_event_or_its_bytes_gets_it_whole():
    decoder = ValueDecoder(FakeSchemas, WaitBudget(2_000, FakeTime().clock), events=True)
    assert decoder.decode(events_layout(), a_record(EVENT.encode())).value == EVENT.encode()
    as_bytes = decoder_of(FakeSchemas(), as_bytes=True)
    assert as_bytes.decode(events_layout(), a_record(EVENT.encode())).value == EVENT.encode()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"no", "it is not a JSON object"),
        (b"\xff", "it is not UTF-8"),
        (b'{"id": 1}', "it has no op"),
        (b'{"op": "d"}', "the event deletes the row"),
    ],
)
def test_what_is_not_a_change_event_with_a_row_is_explained(value, reason):
    decoder, layout = decoder_of(FakeSchemas()), events_layout()
    with pytest.raises(ValueNotDecodable, match=reason):
        decoder.decode(layout, a_record(value))
    explained = decoder.decode_or_explain(layout, a_record(value))
    assert explained.form
    assert (explained.form.name, explained.value) == ("base64", value)
    assert reason in str(explained.form.undecoded)


def test_an_event_that_is_left_in_kafka_has_no_row_to_decode():
    record = a_record(b"", left_in_kafka_bytes=9)
    assert decoder_of(FakeSchemas()).decode(events_layout(), record) is record
