"""Keys by the schemas of a registry: their bytes, and which of several records counts."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from tests.support.builders import NOW_MS, a_layout, a_watermark, layout_entry, value_key, watermark_entry
from tests.support.fakes import FakeTime
from tests.support.stored import Reader

from keylane.adapters.registry import protobuf, protobuf_writer
from keylane.adapters.registry.client import RegisteredSchema
from keylane.adapters.registry.compiled import CompiledSchemas
from keylane.adapters.registry.keys import LISTED_MS, RegistryKeys
from keylane.errors import BadRequest, PositionNotReached, RegistryUnavailable
from keylane.formats import avro_keys, avro_reader, confluent
from keylane.formats.avro_schema import NotOfSchema
from keylane.formats.connect_keys import keys_with_schema
from keylane.model.records import Options, Position
from keylane.ports import Deadline, Decoder, KeyEncoder, SchemaRefused, WaitBudget
from keylane.query.latest import Wait
from keylane.query.newest import join_newest, read_newest
from keylane.query.registry_keys import encode_by_schemas
from keylane.query.store import Reading, ReadTerms, Store, begin_reading
from keylane.query.typed_keys import KeyFinder
from keylane.state import codec
from keylane.state.json_keys import encode_json
from keylane.state.lanes import lane_of_key

SUBJECT = "items-key"


def record(*fields: tuple[str, object]) -> str:
    return json.dumps(
        {"type": "record", "name": "Key", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    )


def logical(kind: str, name: str, **more: object) -> dict[str, object]:
    return {"type": kind, "logicalType": name, **more}


class FakeRegistry:
    """Versions of one subject; it counts what it is asked."""

    def __init__(self, *schemas: RegisteredSchema) -> None:
        self.schemas = list(schemas)
        self.is_away = False
        self.listed = 0

    def versions(self, subject, _):
        self.listed += 1
        if self.is_away:
            raise RegistryUnavailable("away")
        if not self.schemas:
            raise SchemaRefused(f"the Schema Registry does not have subject {subject!r}")
        return list(range(1, len(self.schemas) + 1))

    def version(self, _, version, __):
        return 100 + version, self.schemas[version - 1]

    def referenced(self, *_):
        return []


def avro(*fields: tuple[str, object]) -> RegisteredSchema:
    return RegisteredSchema("AVRO", record(*fields), [])


def encoders_of(*schemas: RegisteredSchema):
    return RegistryKeys(FakeRegistry(*schemas), CompiledSchemas()).encoders(
        SUBJECT, Deadline.after_ms(1_000, FakeTime().clock)
    )


def key_of(schema: RegisteredSchema, asked: str) -> bytes:
    (found,) = encode_by_schemas(SUBJECT, encoders_of(schema), asked.encode())
    assert confluent.split(found).schema_id == 101
    return confluent.split(found).payload


AT = "2013-01-01T10:00:00.123Z"
RAW = base64.b64encode(b"\x00\xff").decode()


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("int", 7),
        ("long", -(2**63)),
        ("string", "7"),
        ("string", "a\u00fc\U0001f6eb"),
        ("boolean", True),
        ("double", 1.5),
        ("bytes", RAW),
        ({"type": "fixed", "name": "F", "size": 2}, RAW),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        (["null", "int"], None),
        (["null", "int"], 7),
        (["null", "string", "long"], 7),
        (logical("bytes", "decimal", precision=9, scale=2), "-12.50"),
        (logical("bytes", "decimal", precision=9, scale=2), "1.28"),
        (logical("bytes", "decimal", precision=9), "0"),
        ({**logical("fixed", "decimal", precision=9, scale=2), "name": "D", "size": 4}, "12.50"),
        ({**logical("fixed", "uuid"), "name": "U", "size": 16}, "7d0cd9a8-0000-4000-8000-000000000001"),
        (logical("string", "uuid"), "7d0cd9a8-0000-4000-8000-000000000001"),
        (logical("int", "date"), "1969-12-31"),
        (logical("int", "time-millis"), "10:00:00.001"),
        (logical("long", "time-micros"), "10:00:00.000001"),
        (logical("long", "timestamp-millis"), AT),
        (logical("long", "timestamp-micros"), "1969-12-31T23:59:59.999999Z"),
        (logical("long", "local-timestamp-millis"), "2013-01-01T10:00:00.123"),
        (logical("long", "timestamp-millis"), 10**18),
        ({"type": "array", "items": "int"}, [1, 2]),
    ],
)
def test_an_avro_key_is_asked_for_as_it_is_shown(kind, shown):
    schema = record(("id", kind))
    data = avro_keys.keys_of(schema).encode({"id": shown})
    assert json.loads(avro_reader.decoder(schema)(data)) == {"id": shown}


@pytest.mark.parametrize("number", [1.0, 0.1, -0.0, 1e22, -2.5e-7, 5e-324, 1.7976931348623157e308])
@pytest.mark.parametrize("schema", [RegisteredSchema("AVRO", '"double"', []), avro(("id", "double"))])
def test_a_double_is_asked_for_by_its_text_as_it_is_shown(schema, number):
    assert key_of(schema, json.dumps(number)) == struct.pack("<d", number)
    with pytest.raises(BadRequest):
        key_of(schema, "1e999")


class OneSchema(NamedTuple):
    """A registry with one schema of keys."""

    schema: RegisteredSchema

    def key_encoders(self, *_: object) -> Sequence[KeyEncoder]:
        return encoders_of(self.schema)

    def decoder(self, *_: object) -> Decoder:
        decode = {
            "AVRO": avro_reader.decoder,
            "PROTOBUF": lambda text: protobuf.decoder(text, []),
            "JSON": lambda _: bytes.decode,
        }[self.schema.kind]
        return Decoder(self.schema.kind, decode(self.schema.text))


@pytest.mark.parametrize(
    ("schema", "shown", "others"),
    [
        (avro(("id", "int")), "7", ["07", "-07", "007"]),
        (RegisteredSchema("AVRO", '"long"', []), "-7", ["-07"]),
        (avro(("id", "double")), "7.0", ["7", "7.00", "07.0", "70e-1"]),
        (avro(("id", "boolean")), "true", []),
        (avro(("id", "string")), "07", []),
        (avro(("id", ["null", "string"])), "null", []),
        (avro(("id", "bytes")), "QQ==", ["QR=="]),
        (avro(("id", logical("int", "date"))), "2026-01-01", ["20260101", "2026-W01-4", "20454"]),
        (
            avro(("id", {**logical("fixed", "uuid"), "name": "U", "size": 16})),
            "7d0cd9a8-0000-4000-8000-00000000000a",
            ["7D0CD9A8-0000-4000-8000-00000000000A", "urn:uuid:7d0cd9a8-0000-4000-8000-00000000000a"],
        ),
        (avro(("id", logical("bytes", "decimal", precision=9, scale=2))), "1.50", ["1.5", "01.50"]),
        (avro(("id", logical("long", "timestamp-millis"))), AT, [AT.replace("Z", "000Z"), "1357034400123"]),
        (RegisteredSchema("PROTOBUF", 'syntax = "proto3"; message Key { int64 id = 1; }', []), "7", ["07"]),
        (RegisteredSchema("JSON", '{"type": "integer"}', []), "7", ["07"]),
        (RegisteredSchema("JSON", '{"properties": {"id": {"type": "string"}}}', []), "7", []),
    ],
)
def test_a_rule_names_a_key_by_what_is_shown_of_it_alone(schema, shown, others):
    layout = a_layout(options=Options(index=1, key_format="registry"))
    finder = KeyFinder(lambda: OneSchema(schema), WaitBudget(1_000, FakeTime().clock))
    (key,) = finder.keys_shown_as(layout, shown.encode())
    for other in others:
        assert encode_by_schemas(SUBJECT, encoders_of(schema), other.encode()) != ()
        assert finder.keys_shown_as(layout, other.encode()) == (), other
    assert confluent.split(key).schema_id == 101


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("string customer_id = 1;", {"customer_id": "ann"}),
        ("int64 customer_id = 1;", {"customer_id": 7}),
        ("optional string a = 1; int32 n = 2;", {"n": 7}),
        ("optional string a = 1; int32 n = 2;", {"a": "", "n": 7}),
        ("oneof k { string a = 1; int32 n = 2; }", {"a": "x"}),
        ("Part part = 1; message Part { int32 x = 1; }", {}),
    ],
)
def test_a_protobuf_key_is_asked_for_as_it_is_shown(fields, message):
    schema = f'syntax = "proto3"; message Key {{ {fields} }}'
    written = protobuf_writer.encoder(schema)(message)
    shown = protobuf.decoder(schema, [])(written)
    assert key_of(RegisteredSchema("PROTOBUF", schema, []), shown) == written


def test_a_json_key_may_lack_what_its_schema_does_not_require():
    schema = {"type": "object", "properties": {"region": {"type": "string"}, "n": {"type": "integer"}}}
    lenient = RegisteredSchema("JSON", json.dumps({**schema, "required": ["region"]}), [])
    assert key_of(lenient, '{"region": "eu"}') == b'{"region":"eu"}'
    assert key_of(lenient, '{"n": 7, "region": "eu"}') == b'{"region":"eu","n":7}'
    for asked in ('{"n": 7}', "{}", '{"region": "eu", "x": 1}'):
        with pytest.raises(BadRequest, match="is not an object of region, n"):
            key_of(lenient, asked)
    with pytest.raises(BadRequest, match="is not an object of region, n"):
        key_of(RegisteredSchema("JSON", json.dumps(schema), []), '{"region": "eu"}')


def test_a_decimal_whose_scale_would_fill_the_memory_makes_no_keys():
    schema = avro(("id", logical("bytes", "decimal", precision=10**9, scale=10**9)))
    with pytest.raises(SchemaRefused, match="a decimal of scale 1000000000"):
        encoders_of(schema)


def test_an_object_without_the_only_field_is_its_text():
    def made_of(schema: str, key: str) -> bytes:
        keys = avro_keys.keys_of(schema)
        return encode_by_schemas(SUBJECT, [KeyEncoder(7, keys.fields, keys.encode)], key.encode())[0]

    schema, document = record(("id", "string")), '{"$oid": "596e"}'
    assert made_of(schema, document) == made_of(schema, json.dumps({"id": document}))
    with pytest.raises(BadRequest):
        made_of(record(("id", "int")), document)


@pytest.mark.parametrize(
    ("kind", "wrong", "why"),
    [
        ("int", "7", "is not an integer of 32 bits"),
        ("int", 2**31, "is not an integer of 32 bits"),
        ("bytes", "?", "is not base64"),
        ({"type": "fixed", "name": "F", "size": 2}, "", "has 0 bytes, not 2"),
        (["null", "int"], "x", "is not one of null, int"),
        (logical("bytes", "decimal", precision=9, scale=2), "1.005", "more than 2 digits"),
        (logical("bytes", "decimal", precision=9, scale=2), "a", "is not a string of decimal digits"),
        (logical("bytes", "decimal", precision=9_000, scale=9_000), "1", "more than 4300 digits"),
        ({**logical("fixed", "decimal", precision=2), "name": "D", "size": 1}, "128", "is too large"),
        ({**logical("fixed", "uuid"), "name": "U", "size": 16}, "7d", "is not a UUID"),
        (logical("int", "date"), "2013-02-30", "is not a date"),
        (logical("int", "time-millis"), "10:61:00", "is not a time"),
        (logical("long", "timestamp-millis"), "2013-01-01T10:00:00", "is not a time of ISO 8601 in UTC"),
        (logical("long", "timestamp-millis"), "2013-01-01T10:00:00.1234Z", "more than 3 digits of a second"),
    ],
)
def test_what_an_avro_schema_can_not_hold_says_why(kind, wrong, why):
    with pytest.raises(NotOfSchema, match=why) as raised:
        avro_keys.keys_of(record(("id", kind))).encode({"id": wrong})
    assert raised.value.path == "id"


JSON_KEY = RegisteredSchema(
    "JSON",
    json.dumps(
        {
            "type": "object",
            "properties": {
                "number": {"type": "integer", "connect.index": 1},
                "region": {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 0},
            },
        }
    ),
    [],
)
PROTOBUF_KEY = RegisteredSchema("PROTOBUF", 'syntax = "proto3"; message Key { int64 id = 1; }', [])


@pytest.mark.parametrize(
    ("schema", "asked", "payload"),
    [
        (avro(("id", "int")), "7", b"\x0e"),
        (avro(("id", "int")), '{"id": 7}', b"\x0e"),
        (avro(("id", "string")), "7", b"\x027"),
        (avro(("id", "boolean")), "true", b"\x01"),
        (avro(("id", "double")), "1.5", b"\x00\x00\x00\x00\x00\x00\xf8?"),
        (avro(("region", "string"), ("number", "int")), '{"number": 7, "region": "eu"}', b"\x04eu\x0e"),
        (RegisteredSchema("AVRO", '"long"', []), "7", b"\x0e"),
        (RegisteredSchema("AVRO", '"string"', []), "{a", b"\x04{a"),
        (JSON_KEY, '{"number": 7, "region": "e\\u0075"}', b'{"region":"eu","number":7}'),
        (JSON_KEY, '{"number": 7, "region": null}', b'{"region":null,"number":7}'),
        (RegisteredSchema("JSON", '{"type": "integer"}', []), "7", b"7"),
        (RegisteredSchema("JSON", '{"type": "string"}', []), "7", b'"7"'),
        (PROTOBUF_KEY, "7", b"\x00\x08\x07"),
        (PROTOBUF_KEY, '{"id": 0}', b"\x00"),
    ],
)
def test_a_key_has_the_bytes_of_its_schema(schema, asked, payload):
    assert key_of(schema, asked) == payload


@pytest.mark.parametrize(
    ("schema", "asked", "why"),
    [
        (avro(("id", "int")), "seven", "key.id is not an integer of 32 bits"),
        (avro(("id", "int")), '{"id": 7', "not valid JSON"),
        (avro(("id", "int")), "{}", "key.id is missing"),
        (avro(("id", "int")), '{"id": 7, "x": 1}', "key.x is not a field of the schema"),
        (avro(("a", "int"), ("b", "int")), "7", "is not a JSON object of a, b"),
        (JSON_KEY, '{"region": "eu"}', "is not an object of region, number"),
        (JSON_KEY, '{"region": "eu", "number": true}', "key.number is not one of integer"),
        (JSON_KEY, '{"region": [], "number": 1}', "is an object or an array"),
        (JSON_KEY, r'{"region": "\ud83d", "number": 1}', "has characters that are not valid Unicode"),
        (PROTOBUF_KEY, "{}", "is not an object of id"),
        (PROTOBUF_KEY, "seven", "is not a message of type Key"),
    ],
)
def test_what_no_schema_holds_is_a_bad_request(schema, asked, why):
    with pytest.raises(BadRequest, match=why.replace("(", r"\(")) as raised:
        key_of(schema, asked)
    assert raised.value.parameter == "key"


def test_a_key_is_encoded_by_each_schema_that_can_hold_it_newer_ones_first():
    encoders = encoders_of(avro(("id", "int")), avro(("id", "long")), avro(("id", "string")))
    found = encode_by_schemas(SUBJECT, encoders, b'{"id": 7}')
    assert found == (confluent.join(102, b"\x0e"), confluent.join(101, b"\x0e"))
    assert encode_by_schemas(SUBJECT, encoders, b'{"id": 3000000000}') == (
        confluent.join(102, b"\x80\xf8\x82\xad\x16"),
    )


def test_versions_are_listed_again_after_a_while_and_stay_while_the_registry_is_away():
    time, registry = FakeTime(), FakeRegistry(avro(("id", "int")))
    keys = RegistryKeys(registry, CompiledSchemas())

    def ids() -> list[int]:
        return [each.schema_id for each in keys.encoders(SUBJECT, Deadline.after_ms(1_000, time.clock))]

    assert (ids(), ids(), registry.listed) == ([101], [101], 1)
    registry.schemas.append(avro(("id", "long")))
    assert ids() == [101]
    time.move(LISTED_MS / 1000 + 0.1)
    assert ids() == [102, 101]
    registry.is_away = True
    time.move(LISTED_MS / 1000 + 0.1)
    assert (ids(), ids(), registry.listed) == ([102, 101], [102, 101], 3)


def test_a_subject_that_is_not_there_is_asked_for_again_and_an_unreachable_registry_says_so():
    time, registry = FakeTime(), FakeRegistry()
    keys = RegistryKeys(registry, CompiledSchemas())
    for _ in range(2):
        with pytest.raises(SchemaRefused, match="does not have subject 'items-key'"):
            keys.encoders(SUBJECT, Deadline.after_ms(1_000, time.clock))
    assert registry.listed == 1
    registry.schemas.append(RegisteredSchema("AVRO", "{", []))
    time.move(LISTED_MS / 1000 + 0.1)
    with pytest.raises(SchemaRefused, match="version 1 of subject 'items-key' makes no keys"):
        keys.encoders(SUBJECT, Deadline.after_ms(1_000, time.clock))
    registry.is_away = True
    with pytest.raises(RegistryUnavailable):
        RegistryKeys(registry, CompiledSchemas()).encoders(SUBJECT, Deadline.after_ms(1_000, time.clock))


CONNECT = (
    '{"type":"struct","fields":[{"type":"string","optional":false,"field":"region"},'
    '{"type":"int64","optional":false,"field":"number"}],"optional":false,"name":"shop.public.items.Key"}'
)


def test_a_key_with_a_schema_has_it_before_its_payload():
    form = keys_with_schema(CONNECT.replace(":", ": "))
    key = f'{{"schema":{CONNECT},"payload":{{"region":"eu","number":7}}}}'.encode()
    assert encode_json(form, b'{"number": 7, "region": "eu"}') == key
    assert form.show(key) == '{"region":"eu","number":7}'
    assert [form.show(other) for other in (b"7", b"\xff", key[:-1], key[:-2] + b"}", b"{" + key)] == [
        None
    ] * 5
    bare = keys_with_schema('{"type": "int32", "optional": false}')
    assert encode_json(bare, b"7") == b'{"schema":{"type":"int32","optional":false},"payload":7}'
    assert bare.show(encode_json(bare, b"7")) == "7"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "is not valid JSON"),
        ("[]", "it has no type"),
        (r'{"type": "string", "doc": "\ud83d"}', "is not valid JSON"),
        ('{"type": "struct"}', "it has no fields"),
        ('{"type": "struct", "fields": [{"type": "int32"}]}', "a field has no name"),
        ('{"type": "struct", "fields": [{"type": "double", "field": "d"}]}', "a field 'd' of type 'double'"),
    ],
)
def test_a_schema_without_keys_says_why(schema, why):
    with pytest.raises(ValueError, match=why):
        keys_with_schema(schema)


KEYS = tuple(confluent.join(number, b"\x0e") for number in (102, 101))
LAYOUT = a_layout(options=Options(key_format="registry"))
TERMS = ReadTerms(1_000)


def store_of(*stored: bytes | None, age_ms: int = 0) -> Store:
    """A store with what is stored under KEYS, in lanes of their own; the second one is older."""
    assert len({lane_of_key(LAYOUT, key) for key in KEYS}) == len(KEYS)
    entries = layout_entry(LAYOUT)
    for number, (key, data) in enumerate(zip(KEYS, stored, strict=True)):
        watermark = a_watermark(complete_as_of_ms=NOW_MS - age_ms * number)
        entries |= watermark_entry(LAYOUT, key, watermark)
        if data is not None:
            entries[value_key(LAYOUT, key)] = data
    return Reader(entries).store


def begun(store: Store) -> Reading:
    return begin_reading(store, LAYOUT.topic, Deadline.after_ms(TERMS.timeout_ms, store.clock))


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        ((codec.encode_record(b"new", 1, 200), codec.encode_record(b"old", 9, 100)), b"new"),
        ((codec.encode_record(b"old", 9, 100), codec.encode_record(b"new", 1, 200)), b"new"),
        (
            (codec.encode_record(b"newer schema", 1, 100), codec.encode_record(b"other", 9, 100)),
            b"newer schema",
        ),
        ((codec.encode_record(None, 1, 200), codec.encode_record(b"deleted since", 9, 100)), None),
        (
            (codec.encode_record(None, 1, 100), codec.encode_record(b"written again", 9, 200)),
            b"written again",
        ),
        ((None, codec.encode_record(b"only", 9, 100)), b"only"),
        ((None, None), None),
    ],
)
def test_the_newest_record_under_the_keys_counts_and_a_deletion_is_one(stored, value):
    answer = read_newest(begun(store_of(*stored)), KEYS, TERMS)
    assert (answer.record and answer.record.value) == value


def test_an_answer_is_as_old_as_the_oldest_lane_that_it_depends_on():
    store = store_of(codec.encode_record(b"v", 1, 200), None, age_ms=5_000)
    assert read_newest(begun(store), KEYS, TERMS).age_ms(store.clock.now_ms()) == 5_000


def test_a_wait_for_an_offset_is_refused_and_one_for_a_position_waits_for_its_partition():
    store = store_of(codec.encode_record(b"v", 1, 200), None)
    with pytest.raises(BadRequest, match="wait for a Keylane-Min-Position"):
        read_newest(begun(store), KEYS, TERMS, Wait(1, 10))
    lane = lane_of_key(LAYOUT, KEYS[1])
    answer = read_newest(begun(store), KEYS, TERMS, Wait(Position(lane.partition, 99), 10))
    assert answer.record is not None
    with pytest.raises(PositionNotReached):
        read_newest(begun(store), KEYS, TERMS, Wait(Position(lane.partition, 100), 10))


def test_a_poll_waits_for_a_record_under_any_of_the_keys():
    store = store_of(codec.encode_record(b"old", 1, 100), None)
    first = read_newest(begun(store), KEYS, TERMS)
    known = Wait(is_known=lambda answer: answer.record == first.record, change_ms=500)
    assert read_newest(begun(store), KEYS, TERMS, known).record == first.record
    entry = {value_key(LAYOUT, KEYS[1]): codec.encode_record(b"new", 5, 300)}
    store.state.entries.update(entry)
    answer = read_newest(begun(store), KEYS, TERMS, known)
    assert answer.record is not None
    assert answer.record.value == b"new"


def test_topics_that_write_a_key_in_other_ways_are_joined_one_after_the_other_alone():
    store = store_of(codec.encode_record(b"v", 1, 200), None)
    topics = [LAYOUT.topic, LAYOUT.topic]
    with pytest.raises(BadRequest, match="atomic=false"):
        join_newest(store, topics, [KEYS[:1], KEYS[1:]], TERMS, atomic=True)
    found = join_newest(store, topics, [KEYS, KEYS[1:]], TERMS, atomic=False)
    assert [(key, bool(answer.record)) for key, answer in found] == [(KEYS[0], True), (KEYS[1], False)]
    (one, two) = join_newest(store, topics, [KEYS[:1], KEYS[:1]], TERMS, atomic=True)
    assert one == two
