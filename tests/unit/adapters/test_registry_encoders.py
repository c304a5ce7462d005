"""The encoders of a registry's schemas: of which subject, and how often the registry is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.servers.registry_double import RegistryDouble, client_of

from keylane.adapters.registry.compiled import CompiledSchemas
from keylane.adapters.registry.decoders import RegistryDecoders
from keylane.adapters.registry.encoders import RegistryEncoders, make_encoder
from keylane.adapters.registry.keys import RegistryKeys
from keylane.formats.avro_schema import NotOfSchema
from keylane.ports import Clock, Deadline, SchemaRefused


@pytest.fixture
def served():
    with RegistryDouble() as double:
        double.has("/schemas/ids/7", {"schema": '"int"'})
        double.has("/schemas/ids/7/versions", [{"subject": "orders-value", "version": 1}])
        double.lacks("/schemas/ids/8")
        yield double


@pytest.fixture
def encoders(served: RegistryDouble) -> RegistryEncoders:
    return RegistryEncoders(client_of(served.url))


def deadline() -> Deadline:
    return Deadline.after_ms(20_000, Clock())


def test_a_schema_is_used_for_the_subject_that_has_it_and_for_no_other(
    encoders: RegistryEncoders, served: RegistryDouble
):
    for _ in range(2):
        found = encoders.encoder("orders-value", 7, deadline())
        assert (found.kind, found.schema_id, found.version, found.encode(3)) == ("AVRO", 7, 1, b"\x06")
    assert served.asked == ["/schemas/ids/7", "/schemas/ids/7/versions"]
    for subject in ("payments-value", "orders-key"):
        with pytest.raises(SchemaRefused, match=f"schema 7 is not a version of subject '{subject}'"):
            encoders.encoder(subject, 7, deadline())


def test_an_unknown_id_is_refused(encoders: RegistryEncoders):
    with pytest.raises(SchemaRefused, match="does not have schema 8"):
        encoders.encoder("orders-value", 8, deadline())


def json_schema(double: RegistryDouble, subject: str, schema: dict[str, Any], **names: str) -> None:
    """Version 1 of a subject, which knows other subjects' first versions by these names."""
    references = [{"name": name, "subject": of, "version": 1} for of, name in names.items()]
    document = {"schema": json.dumps(schema), "schemaType": "JSON", "references": references}
    double.has(f"/subjects/{subject}/versions/1", document)
    double.has("/schemas/ids/9", document)
    double.has("/schemas/ids/9/versions", [{"subject": subject, "version": 1}])


def test_a_schema_that_is_deleted_softly_is_known_to_what_refers_to_it(
    encoders: RegistryEncoders, served: RegistryDouble
):
    leg = {"type": "record", "name": "Leg", "fields": [{"name": "to", "type": "string"}]}
    trip = {"type": "record", "name": "Trip", "fields": [{"name": "leg", "type": "Leg"}]}
    references = [{"name": "Leg", "subject": "leg", "version": 1}]
    served.has("/schemas/ids/7", {"schema": json.dumps(trip), "references": references})
    served.lacks("/subjects/leg/versions/1")
    served.has("/subjects/leg/versions/1?deleted=true", {"schema": json.dumps(leg)})
    found = encoders.encoder("orders-value", 7, deadline())
    assert found.encode({"leg": {"to": "Zug"}}) == b"\x06Zug"


def test_a_key_is_looked_for_by_versions_that_are_deleted_softly_too(served: RegistryDouble):
    number = {"name": "id", "type": "int"}
    served.has("/subjects/orders-key/versions", [2])
    served.has("/subjects/orders-key/versions?deleted=true", [1, 2])
    for version in (1, 2):
        added = {"name": f"v{version}", "type": ["null", "int"], "default": None}
        schema = {"type": "record", "name": "K", "fields": [number, added]}
        path = f"/subjects/orders-key/versions/{version}"
        served.has(f"{path}?deleted=true", {"id": version, "schema": json.dumps(schema)})
    keys = RegistryKeys(client_of(served.url), CompiledSchemas())
    assert {each.schema_id for each in keys.encoders("orders-key", deadline())} == {1, 2}


def test_the_newest_versions_of_a_subject_come_first_and_of_none_there_are_none(served: RegistryDouble):
    schemas = RegistryDecoders(client_of(served.url))
    served.has("/subjects/orders-value/versions?deleted=true", [1, 3, 2])
    for version in (2, 3):
        document = {"id": 70 + version, "schema": f"v{version}", "schemaType": "PROTOBUF"}
        served.has(f"/subjects/orders-value/versions/{version}?deleted=true", document)
    assert list(schemas.newest_versions("orders-value", 2, deadline())) == [
        (3, 73, "PROTOBUF", "v3"),
        (2, 72, "PROTOBUF", "v2"),
    ]
    served.lacks("/subjects/orders-key/versions?deleted=true")
    assert list(schemas.newest_versions("orders-key", 2, deadline())) == []


def test_one_version_may_have_a_name_of_its_own_in_each_schema_that_refers_to_it(
    encoders: RegistryEncoders, served: RegistryDouble
):
    json_schema(served, "common", {"type": "object", "required": ["z"]})
    child = {"properties": {"c": {"$ref": "types/common.json"}}}
    json_schema(served, "child", child, common="types/common.json")
    both = {"properties": {"c": {"$ref": "common.json"}, "d": {"$ref": "child.json"}}}
    json_schema(served, "both", both, common="common.json", child="child.json")
    encode = encoders.encoder("both", 9, deadline()).encode
    assert encode({"c": {"z": 1}, "d": {"c": {"z": 1}}})
    for wrong in ({"c": {}}, {"d": {"c": {}}}):
        with pytest.raises(NotOfSchema):
            encode(wrong)


@pytest.mark.parametrize(
    "draft",
    [
        {},
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"$schema": "https://acme.example/meta"},
        {"$schema": 7},
    ],
    ids=["no dialect", "draft-07", "a dialect of one's own", "no text"],
)
def test_a_schema_without_a_draft_is_of_draft_07_as_rest_proxy_reads_it(draft: dict[str, Any]):
    times = make_encoder("JSON", json.dumps({"properties": {"at": {"format": "date-time"}}} | draft)).encode
    assert times({"at": "2026-11-28T10:00:00Z"})
    with pytest.raises(NotOfSchema):
        times({"at": "not a date"})
    pairs = make_encoder("JSON", json.dumps({"items": [{"type": "integer"}]} | draft)).encode
    assert pairs([1, "a"])
    with pytest.raises(NotOfSchema):
        pairs(["a"])


def test_a_schema_of_a_draft_is_read_by_that_draft():
    draft = "https://json-schema.org/draft/2020-12/schema"
    encode = make_encoder("JSON", json.dumps({"$schema": draft, "prefixItems": [{"type": "integer"}]})).encode
    with pytest.raises(NotOfSchema):
        encode(["a"])


@pytest.mark.parametrize(
    "ref", ["http://localhost:8081/subjects/a-value/versions/1", "#/definitions/none", "#none"]
)
def test_a_schema_with_a_ref_that_leads_nowhere_is_refused_before_it_is_registered(
    encoders: RegistryEncoders, served: RegistryDouble, ref: str
):
    text = json.dumps({"properties": {"a": {"$ref": ref}}})
    with pytest.raises(ValueError, match=r"."):
        encoders.registered("orders-value", "JSON", text, deadline())
    assert served.asked == []


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"properties": {"a": {"$id": "#/properties/a", "type": "object"}}}, {"a": {}}, {"a": 1}),
        ({"properties": {"a": {"$id": "/properties/a", "type": "string"}}}, {"a": "x"}, {"a": 1}),
        ({"properties": {"a": {"type": "object", "examples": [{"id": "u-1"}]}}}, {"a": {}}, {"a": 1}),
        ({"properties": {"a": {"enum": [{"id": "u-1"}]}}}, {"a": {"id": "u-1"}}, {"a": {"id": "u-2"}}),
        ({"properties": {"a": {"enum": [{"$id": "u-1"}]}}}, {"a": {"$id": "u-1"}}, {"a": {"$id": "u-2"}}),
        ({"properties": {"enum": {"$id": "http://a/b", "type": "string"}}}, {"enum": "x"}, {"enum": 1}),
    ],
    ids=["fragment", "path", "example", "enum", "enum of $id", "a field called enum"],
)
@pytest.mark.parametrize("draft", ["", "http://json-schema.org/draft-04/schema#"])
def test_a_schema_with_ids_below_its_root_is_checked(schema: Any, good: Any, bad: Any, draft: str):
    encode = make_encoder("JSON", json.dumps(schema | ({"$schema": draft} if draft else {}))).encode
    assert json.loads(encode(good)) == good
    with pytest.raises(NotOfSchema):
        encode(bad)
