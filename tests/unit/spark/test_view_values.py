"""What a view is given of values: nothing that it does not ask for, and no large one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from keylane.adapters.registry.login import RegistrySettings
from keylane.state.windows import KEYS, Column, Definition
from keylane_spark.rows.json_values import read_fields
from keylane_spark.views import values as view_values
from keylane_spark.views.values import LARGEST_TEXT, ReadValues, StretchTooLarge

COUNT = (Column("n", "count"),)
REGISTRY = RegistrySettings("http://registry.example.com")
NAMES = ["partition", "offset", "ms", "key", "value"]


def a_batch(*values: bytes | None) -> pa.RecordBatch:
    number = len(values)
    offsets = pa.array(range(number), pa.int64())
    columns = [pa.array(range(number), pa.int32()), offsets, offsets, pa.array([b"k"] * number)]
    return pa.RecordBatch.from_arrays([*columns, pa.array(values, pa.binary())], NAMES)


def read(definition: Definition, *values: bytes | None) -> pa.RecordBatch:
    [found] = ReadValues.of(definition, None)(iter([a_batch(*values)]))
    return found


@pytest.mark.parametrize("where", [None, "partition = 1 and key is not null"])
def test_a_view_that_counts_records_is_given_no_value(where):
    values = [b"1", b"{", b"\xff", b"", b"[" * 5_000, b'"\\ud83d"', b"0" * 70_000]
    found = read(Definition("t", COUNT, where=where), *values)
    assert found.select(NAMES[:4]).equals(a_batch(*values).select(NAMES[:4]))
    assert found.select(found.schema.names[4:]).to_pydict() == {
        "undecodable": [False] * len(values),
        "unread": [False] * len(values),
    }


def test_tombstones_are_no_records_of_a_log_and_delete_rows_of_keys():
    values = [b'{"a": 1}', None]
    assert read(Definition("t", COUNT, key="a"), *values)["offset"].to_pylist() == [0]
    assert read(Definition("t", COUNT, key="a", of=KEYS), *values)["change"].to_pylist() == [0, 1]


@pytest.mark.parametrize(
    ("definition", "registry", "columns"),
    [
        (Definition("t", (Column("n", "count", "x"),)), None, {"field 0"}),
        (Definition("t", (Column("n", "latest"),)), None, {"field 0", "written 0"}),
        (Definition("t", COUNT, key="a"), None, {"field 0"}),
        (Definition("t", COUNT, time="a"), None, {"field 0"}),
        (Definition("t", COUNT, where="VALUE like 'a%'"), None, {"value"}),
        (Definition("t", COUNT, where="variant_get(Json, '$.a', 'int') = 1"), None, {"text"}),
        (Definition("t", COUNT, of=KEYS), None, {"change"}),
        (Definition("t", COUNT, envelope="debezium"), None, {"change"}),
        (Definition("t", COUNT, value_format="registry"), REGISTRY, set()),
    ],
)
def test_a_view_is_given_the_fields_texts_and_changes_that_it_needs(definition, registry, columns):
    names = ReadValues.of(definition, registry).names
    assert names.keys() == {*NAMES[:4], "undecodable", "unread", *columns}


@pytest.mark.parametrize("fill", [b"a", b'"'])
def test_of_a_large_value_spark_is_given_what_is_small(fill):
    large = b'{"a": 1, "b": "' + fill.replace(b'"', b'\\"') * LARGEST_TEXT + b'"}'
    columns = (Column("n", "count", "b"), Column("l", "latest", "b"), Column("s", "sum", "a"))
    found = read(Definition("t", columns, key="a", where="json is not null"), large, b'{"a": 2, "b": "c"}')
    assert found["unread"].to_pylist() == [True, False]
    assert found["text"].to_pylist() == [None, '{"a": 2, "b": "c"}']
    assert found["field 0"].to_pylist() == ["1", "2"]
    assert found["field 1"].to_pylist() == ['"..."', '"c"'], "it is there"
    assert found["written 1"].to_pylist() == [None, '"c"']
    assert found.nbytes < 1000


def test_a_field_that_is_too_long_for_a_key_is_none_and_for_latest_it_is_whole():
    long = b'{"a": "%b"}' % (b"x" * 400_000)
    found = read(Definition("t", (Column("l", "latest", "a"),), key="a"), long)
    assert found["field 0"].to_pylist() == [None]
    found = read(Definition("t", (Column("l", "latest", "a"),)), long)
    assert found["field 0"].to_pylist() == ['"..."']
    assert found["written 0"].to_pylist() == [f'"{"x" * 400_000}"']


def test_a_task_does_not_read_more_for_latest_than_the_jvm_should_keep_unless_it_is_one_record(monkeypatch):
    monkeypatch.setattr(view_values, "LATEST_BYTES", 1000)
    function = ReadValues.of(Definition("t", (Column("l", "latest", "a"),)), None)
    record = b'{"a": "%b"}' % (b"x" * 600)
    assert len(list(function(iter([a_batch(record)])))) == 1
    assert len(list(function(iter([a_batch(b'{"a": "%b"}' % (b"x" * 2000))])))) == 1
    with pytest.raises(StretchTooLarge):
        list(function(iter([a_batch(record), a_batch(record)])))


@pytest.mark.parametrize("paths", [["o", "o.x", "o.x.y"], ["o.x.y", "o.x", "o"], ["o.x", "o.x.y"], ["o.x.y"]])
def test_a_field_is_what_it_is_beside_one_in_which_it_lies_and_one_that_lies_in_it(paths):
    documents = [
        '{"o": {"x": {"y": 1}}}',
        '{"o": {"x": "é"}}',
        '{"o": {"x": null}}',
        '{"o": {}}',
        '{"o": 5}',
        '{"o": [{"x": 2}]}',
        '{"o": null}',
        '{"o": {"x": {"y": 1e400}}}',
        "{}",
        "7",
        "no JSON",
        None,
    ]
    values = {path: [_at(document, path.split(".")) for document in documents] for path in paths}
    _, fields = read_fields(documents, [tuple(path.split(".")) for path in paths])
    assert {path: each.written.to_pylist() for path, each in zip(paths, fields, strict=True)} == values


def _at(document: str | None, path: list[str]) -> str | None:
    """The text at a path of a document whose objects have at most one member."""
    for name in path:
        text = (document or "").removeprefix("{").removesuffix("}")
        if document is None or not (document.startswith("{") and text.startswith(f'"{name}": ')):
            return None
        document = text.removeprefix(f'"{name}": ')
    return document
