"""Protobuf schemas as text and as descriptors, and the files that nobody registers."""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import re
from pathlib import Path

import pytest
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.type import decimal_pb2, variant_pb2
from confluent_kafka.schema_registry.confluent.types import decimal_pb2 as legacy_decimal_pb2
from google.api import http_pb2
from google.protobuf import descriptor_pool, struct_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st
from tests.corpora.protos import without_skipped

from keylane.adapters.registry import proto_parser, protobuf, protobuf_writer
from keylane.adapters.registry.protobuf_builtin import CONFLUENT_FILES

FLIGHT = """
/* what is commented; } */ syntax = "proto3";
package org.example;
import public "google/protobuf/timestamp.proto"; import 'google/type/date.proto';
import "confluent/meta.proto"; import "confluent/type/decimal.proto";
option java_package = "org.example"; option (confluent.file_meta) = { doc: "}" tags: ["a", "b"] };
message Flight {
  option deprecated = true;
  reserved 15, 20 to max; reserved "old";
  string dest = 1 [json_name = "to", (confluent.field_meta) = { tags: "PII", doc: ";" }, deprecated = true];
  optional int32 delay = 2;
  repeated Leg legs = 3;
  map<string, Leg> by_name = 0x4;
  oneof crew { option (x) = 1; string captain = 5; Kind kind = 6; }
  enum Kind { option allow_alias = true; reserved 9; NONE = 0; SOME = 1 [deprecated = true]; FEW = 1; LESS = -1; }
  message Leg { string to = 1; org.example.Other.Inner inner = 2; .org.example.Flight flight = 3; }
  google.protobuf.Timestamp at_time = 7; google.type.Date day = 8; confluent.type.Decimal fare = 9;
  message Last { bytes raw = 1; float f = 2; };
}
message Other { message Inner { int64 number = 1; sint32 s = 2; double d = 3; } }
service Flights { rpc Get (Flight) returns (stream Other) { option (http) = { get: "/v1" }; } rpc Put (Other) returns (Other); }
extend google.protobuf.FieldOptions { string note = 50000; }
"""  # noqa: E501


READ = protobuf.decoder(FLIGHT, ())
WORDS = re.findall(r"\w+|\s+|.", FLIGHT)


def read(schema: str, payload: str, references=()) -> object:
    return json.loads(protobuf.decoder(schema, references)(bytes.fromhex(payload)))


def described(text: str) -> str:
    """The descriptor of a .proto, in base64 as Python's producers register it."""
    return base64.b64encode(proto_parser.parse(text, "any.proto").SerializeToString()).decode()


@pytest.mark.parametrize("spell", [str, described], ids=["text", "descriptor"])
@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("00", {"to": "", "legs": [], "byName": {}}),
        ("000a03534651", {"to": "SFQ", "legs": [], "byName": {}}),
        ("001000", {"to": "", "delay": 0, "legs": [], "byName": {}}),
        ("003001", {"to": "", "legs": [], "byName": {}, "kind": "SOME"}),
        ("003a020805", {"to": "", "legs": [], "byName": {}, "atTime": "1970-01-01T00:00:05Z"}),
        ("04020008051001", {"number": "5", "s": -1, "d": 0.0}),
        ("04020019000000000000f87f", {"number": "0", "s": 0, "d": "NaN"}),
        ("0400020a01ff", {"raw": "/w==", "f": 0.0}),
    ],
)
def test_messages_are_read_by_text_and_descriptor_alike(spell, payload, expected):
    assert read(spell(FLIGHT), payload) == expected


@pytest.mark.parametrize("payload", ["040202", "01", "0008", "000a05"])
def test_bytes_that_are_not_a_message_of_the_type_are_refused(payload):
    with pytest.raises(ValueError, match=r"."):
        read(FLIGHT, payload)


def test_maps_and_nested_types_of_a_proto_are_resolved():
    assert read(FLIGHT, "00220e0a016112090a015a120408051001") == {
        "to": "",
        "legs": [],
        "byName": {"a": {"to": "Z", "inner": {"number": "5", "s": -1, "d": 0.0}}},
    }


def test_a_map_whose_entries_are_written_out_is_a_map():
    # So Confluent's registry has the schemas of generated classes that it got before version 7.8.
    entry = "message ByNameEntry { option map_entry = true; string key = 1; int32 value = 2; }"
    text = f'syntax = "proto3"; message A {{ repeated .A.ByNameEntry byName = 1; {entry} message B {{ }} }}'
    payload = "000a050a016b1007"
    assert read(text, payload) == {"byName": {"k": 7}}
    assert protobuf_writer.encoder(text)({"byName": {"k": 7}}).hex() == payload
    assert read(text.replace("= true", "= false"), payload) == {"byName": [{"key": "k", "value": 7}]}
    assert read(text, "040002") == {}  # message indexes count the entry, as it is in the text


def test_the_default_syntax_is_proto2():
    text = 'message A { required string s = 1 [default = "x"]; optional int32 n = 2; extensions 100 to 199; }'
    assert read(text, "000a0161") == {"s": "a"}


RANGES = "extensions 100 to 199, 300 to max [ ];"
OPEN = f'syntax = "proto2"; package x; message M {{ optional string a = 1; {RANGES} }}'


@pytest.mark.parametrize("spell", [str, described], ids=["text", "descriptor"])
@pytest.mark.parametrize(
    ("more", "payload", "expected"),
    [
        ("extend M { optional string ext = 100; }", "000a0161a206026869", {"a": "a", "[x.ext]": "hi"}),
        (
            "message In { extend .x.M { repeated In e = 101; optional E en = 536870911; }"  # noqa: ISC004
            " optional int32 i = 1; } enum E { A = 0; B = 7; }",
            "000a0161aa06020805f8ffffff0f07",
            {"a": "a", "[x.In.e]": [{"i": 5}], "[x.In.en]": "B"},
        ),
    ],
)
def test_extensions_are_shown_by_their_names(spell, more, payload, expected):
    assert read(spell(f"{OPEN} {more}"), payload) == expected


@pytest.mark.parametrize(
    ("schema", "payload", "why"),
    [
        (OPEN, "000a0161a206026869", "x.M has an extension 100"),
        (f"{OPEN} message O {{ repeated M m = 1; }}", "02020a05a206026869", "x.M has an extension 100"),
        (f"{OPEN} message O {{ map<string, M> m = 1; }}", "02020a0a0a016b1205a206026869", "extension 100"),
        ("message M { optional E e = 1; } enum E { A = 0; }", "000805", "M has a value of its field 1"),
    ],
)
def test_data_that_can_not_be_shown_is_refused(schema, payload, why):
    with pytest.raises(ValueError, match=why):
        read(schema, payload)


def test_fields_of_a_newer_type_are_left_out_as_by_every_reader():
    assert read(OPEN, "000a0161980605") == {"a": "a"}
    assert read('syntax = "proto3"; message M { string a = 1; }', "000a01611005") == {"a": "a"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oneof _t { optional .M t = 2; }", {"a": "a"}),
        ("optional string foo = 2; string _foo = 3;", {"a": "a", "Foo": ""}),
        ("optional string foo = 2; optional int32 _bar = 3; oneof _foo { int32 X_foo = 4; }", {"a": "a"}),
        ("optional int32 _bar = 2; oneof X_bar { int32 z = 3; }", {"a": "a"}),
    ],
)
def test_optional_fields_have_oneofs_whose_names_nothing_else_has(text, expected):
    assert read(f'\ufeffsyntax = "proto3"; message M {{ string a = 1; {text} }}', "000a0161") == expected


@pytest.mark.parametrize(
    "text",
    [
        "message A { option message_set_wire_format = true; extensions 4 to max; }",
        "message A { extensions to 5; }",
        "message A { extensions 5 to 1; }",
        "message A { } extend A { optional int32 e = 1; }",
        "message A { extensions 1 to 5; } extend A { optional int32 e = 6; }",
        "extend Unheard { optional int32 e = 1; }",
        "message",
        "message A",
        "message A { string }",
        "message A { string a = one; }",
        "message A { string a = 1 }",
        "message A { repeated group G = 1 { } }",
        "syntax = proto3; message A { }",
        'edition = "2023"; message A { }',
        "message A { map<string A> m = 1; }",
        "message A { string a = 1; string a = 1; }",
        "message A { Unheard a = 1; }",
        'import "unheard.proto"; message A { }',
        '"',
        "}",
    ],
)
def test_text_that_is_not_a_proto_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        protobuf.decoder(text, ())


def test_files_that_import_each_other_are_refused():
    circle = [("a.proto", 'import "b.proto"; message A { }'), ("b.proto", 'import "a.proto"; message B { }')]
    with pytest.raises(ValueError, match="imports itself"):
        protobuf.decoder('import "a.proto"; message C { }', circle)


def test_message_that_is_nested_too_deep_is_refused():
    text = "message N { optional N n = 1; }"
    data = b""
    for _ in range(200):
        size = len(data)
        data = b"\x0a" + (bytes((size,)) if size < 128 else bytes((size & 127 | 128, size >> 7))) + data
    with pytest.raises(ValueError, match=r"."):
        protobuf.decoder(text, ())(b"\x00" + data)


@pytest.mark.parametrize("module", [meta_pb2, decimal_pb2, variant_pb2, legacy_decimal_pb2])
def test_confluents_own_files_are_as_its_client_has_them(module):
    assert CONFLUENT_FILES[module.DESCRIPTOR.name] == module.DESCRIPTOR.serialized_pb
    assert len(CONFLUENT_FILES) == 4


def test_well_known_files_need_no_reference():
    text = 'import "google/protobuf/struct.proto"; message A { optional google.protobuf.Struct s = 1; }'
    value = struct_pb2.Struct()
    value.update({"a": [1, None, "x"]})
    data = value.SerializeToString()
    payload = b"\x00\x0a" + bytes((len(data),)) + data
    assert json.loads(protobuf.decoder(text, ())(payload)) == {"s": {"a": [1.0, None, "x"]}}


@given(st.lists(st.sampled_from((0, 2, 4, 8, 10, 16, 18, 34, 48, 58, 128, 255)), max_size=20))
def test_any_bytes_are_a_message_or_refused(numbers):
    try:
        text = READ(bytes(numbers))
    except ValueError:
        return
    json.loads(text)


@given(st.lists(st.tuples(st.integers(0, len(WORDS) - 1), st.sampled_from(("", *WORDS))), max_size=4))
def test_any_words_are_a_proto_or_refused(changes):
    words = list(WORDS)
    for at, word in changes:
        words[at] = word
    with contextlib.suppress(ValueError):
        protobuf.decoder("".join(words), ())


def test_the_descriptor_of_a_proto_is_accepted_by_protobuf():
    pool = descriptor_pool.DescriptorPool()
    pool.Add(FileDescriptorProto(name="a.proto", package="legs"))
    pool.Add(proto_parser.parse('import "a.proto"; message B { oneof o { int32 a = 1; } }', "b.proto"))
    assert pool.FindMessageTypeByName("B").oneofs_by_name["o"].fields[0].name == "a"


NUMBERED = "".join(f"int32 field_number_{number} = {number + 1};" for number in range(2_000))
MANY = f'syntax = "proto3"; import "google/protobuf/any.proto"; message Many {{ {NUMBERED} }}'
SYMBOLS = f'syntax = "proto3"; message A {{ repeated E e = 1; }} enum E {{ {"x" * 20_000} = 0; }}'
ENTRIES = b"".join(b"\x0a\x03\x08" + bytes([0x80 | key & 127, key >> 7]) for key in range(128, 9_000))


@pytest.mark.parametrize("spell", [str, described], ids=["text", "descriptor"])
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("message A { repeated Many m = 1; } " + MANY, b"\x0a\0" * 20_000),
        ("message A { map<int32, Many> m = 1; } " + MANY, ENTRIES),
        ("message A { repeated google.protobuf.Any m = 1; } " + MANY, b"\x0a\x08\x0a\x06a/Many" * 5_000),
        (SYMBOLS, b"\x0a\xff\x7f" + bytes(16_383)),
        (SYMBOLS, b"\x08\0" * 16_383),
    ],
    ids=["messages", "map", "any", "packed symbols", "symbols"],
)
def test_a_small_value_does_not_become_gigabytes(spell, schema, value):
    decode = protobuf.decoder(spell(schema), ())
    with pytest.raises(ValueError, match=r"the value's (messages have|JSON has) more than"):
        decode(b"\0" + value)


def test_large_values_within_the_limits_are_read():
    fields = "".join(f"int32 f{number} = {number + 10};" for number in range(100))
    schema = f"""syntax = "proto3"; message A {{ repeated B b = 1; E e = 2; }}
        message B {{ E e = 1; bytes data = 3; {fields} }} enum E {{ NONE = 0; }}"""
    unknown = b"\x22\x02ab"
    value = (b"\x0a\x46\x1a\x40" + b"x" * 64 + unknown) * 3_000 + b"\x10\0"
    found = json.loads(protobuf.decoder(schema, ())(b"\0" + value))
    assert (len(found["b"]), len(found["b"][0])) == (3_000, 102)


@pytest.mark.parametrize("opened", ["/* ", '\\"', "' \n"])
def test_what_is_never_closed_is_refused_at_once(opened):
    with pytest.raises(ValueError, match="never closed"):
        protobuf.decoder("message A {} " + opened * 200_000, ())


def test_the_name_of_a_type_may_go_on_in_the_next_line():
    text = """syntax = "proto3"; package a . b;
    message M {
      optional Outer
          .Inner one = 1;
      Outer . /* of */ Inner two = 2;
      map<string, . a.b.Outer
          .Inner> three = 3;
      . a.b.Outer.Inner four = 4;
    }
    message Outer { enum Inner { A = 0; B = 1; } }"""
    in_line = re.sub(r"/\*.*?\*/", "", text)
    in_line = re.sub(r"\s*\.\s*(?=[A-Za-z])", ".", in_line).replace(",.", ", .").replace(";.", "; .")
    assert proto_parser.parse(text, "m") == proto_parser.parse(in_line, "m")
    assert read(text, "00080110011a050a0161100120" + "01") == {
        "one": "B", "two": "B", "three": {"a": "B"}, "four": "B"
    }  # fmt: skip


CORPUS = Path(http_pb2.__file__).parents[2]
"""Where the wheel of googleapis-common-protos has its files, each beside the descriptor of protoc."""
NAMES = sorted(str(path.relative_to(CORPUS)) for path in CORPUS.glob("google/**/*.proto"))


def of_protoc(name: str) -> FileDescriptorProto:
    module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def resolved(file: FileDescriptorProto) -> FileDescriptorProto:
    """The descriptor as a pool has it, without what the parser skips."""
    pool, found = descriptor_pool.DescriptorPool(), FileDescriptorProto()
    added = set()

    def add(proto: FileDescriptorProto) -> None:
        if proto.name not in added:
            added.add(proto.name)
            for name in proto.dependency:
                add(of_protoc(name))
            pool.Add(proto)

    add(file)
    pool.FindFileByName(file.name).CopyToProto(found)
    return without_skipped(found)


def test_each_file_of_googles_common_types_is_what_protoc_makes_of_it():
    assert len(NAMES) > 50
    for name in NAMES:
        expected = of_protoc(name)
        found = proto_parser.parse((CORPUS / name).read_text(), expected.name)
        assert resolved(found) == resolved(expected), name
