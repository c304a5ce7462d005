"""Which views look at values: the others have no Python worker between Kafka's source and their windows."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from keylane.adapters.registry.login import RegistrySettings
from keylane.state.windows import KEYS, Column, Definition
from keylane_spark.rows.json_values import read_fields
from keylane_spark.views.values import ReadValues

COUNT = (Column("n", "count"),)
REGISTRY = RegistrySettings("http://registry.example.com")


@pytest.mark.parametrize("where", [None, "partition = 1 and key is not null"])
def test_a_view_that_counts_records_looks_at_no_value_and_would_learn_nothing_from_any(where):
    read = ReadValues.of(Definition("t", COUNT, where=where), None)
    assert not read.looks_at_values
    values = [b"1", b"{", b"\xff", b"", None, b"[" * 5_000, b'"\\ud83d"', b"0" * 70_000]
    number = len(values)
    batch = pa.RecordBatch.from_pydict(
        {
            "partition": pa.array(range(number), pa.int32()),
            "offset": pa.array(range(number), pa.int64()),
            "timestamp": pa.array([datetime.now(UTC)] * number),
            "key": pa.array([b"k"] * number),
            "value": pa.array(values, pa.binary()),
        }
    )
    [found] = read(iter([batch]))
    assert found.select(batch.schema.names[:4]).equals(batch.select(batch.schema.names[:4]))
    assert found.select(found.schema.names[4:]).to_pydict() == {
        "undecodable": [False] * number,
        "unread": [False] * number,
    }


@pytest.mark.parametrize(
    ("definition", "registry"),
    [
        (Definition("t", (Column("n", "count", "x"),)), None),
        (Definition("t", (Column("n", "latest"),)), None),
        (Definition("t", COUNT, key="a"), None),
        (Definition("t", COUNT, time="a"), None),
        (Definition("t", COUNT, where="VALUE like 'a%'"), None),
        (Definition("t", COUNT, where="variant_get(Json, '$.a', 'int') = 1"), None),
        (Definition("t", COUNT, of=KEYS), None),
        (Definition("t", COUNT, envelope="debezium"), None),
        (Definition("t", COUNT, value_format="registry"), REGISTRY),
    ],
)
def test_a_view_that_needs_a_field_a_text_a_change_or_a_schema_looks_at_values(definition, registry):
    assert ReadValues.of(definition, registry).looks_at_values


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
