"""Which views look at values: the others have no Python worker between Kafka's source and their windows."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from keylane.adapters.registry.login import RegistrySettings
from keylane.state.windows import KEYS, Column, Definition
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
