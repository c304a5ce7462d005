"""A backlog of change events into the lanes of a warm job, beside values of the same size in a plain topic.

As bench_ingest.py, with `envelope = "debezium"` and without, each on a stack of its own. Of the events one in
ten deletes its row. Those in Avro have the schema of Debezium's connector, from a registry of
its own.
"""

from __future__ import annotations

import argparse
import io
import json
from typing import TYPE_CHECKING

import fastavro
from bench_ingest import CONFIG, LAYOUT, job_seconds, running, value_of
from harness import ResultRow, add_settings, configured, parse, report
from tests.servers.registry_double import RegistryDouble

from keylane.formats.confluent import join

if TYPE_CHECKING:
    from collections.abc import Sequence

PLAIN, EVENTS, AVRO = "plain values", "change events in JSON", "change events in Avro"
SCHEMA_ID = 1
SOURCE = {
    "version": "3.4.0.Final",
    "connector": "postgresql",
    "name": "shop",
    "ts_ms": 1795670993864,
    "snapshot": "false",
    "db": "postgres",
    "sequence": '[null,"22495152"]',
    "schema": "public",
    "table": "customers",
    "txId": 741,
    "lsn": 22495152,
    "xmin": None,
}


def event_of(size: int, operation: str) -> bytes:
    row = {"id": 1, "note": ""}
    before, after = (row, None) if operation == "d" else (None, row)
    event = {"before": before, "after": after, "source": SOURCE, "transaction": None, "op": operation}

    def text() -> bytes:
        return json.dumps(event | {"ts_ms": 1795670994101}, separators=(",", ":")).encode()

    if size < len(text()):
        raise SystemExit(f"an event has {len(text())} bytes at least")
    row["note"] = "x" * (size - len(text()))
    return text()


def _nullable(kind: object) -> dict[str, object]:
    return {"type": ["null", kind], "default": None}


def _record(name: str, /, **fields: object) -> dict[str, object]:
    own = [
        {"name": field} | (kind if isinstance(kind, dict) and "default" in kind else {"type": kind})
        for field, kind in fields.items()
    ]
    return {"type": "record", "name": name, "fields": own}


AVRO_SCHEMA = _record(
    "Envelope",
    before=_nullable(_record("Value", id="int", note=_nullable("string"))),
    after=_nullable("Value"),
    source=_record(
        "Source",
        version="string",
        connector="string",
        name="string",
        ts_ms="long",
        snapshot=_nullable("string"),
        db="string",
        sequence=_nullable("string"),
        schema="string",
        table="string",
        txId=_nullable("long"),
        lsn=_nullable("long"),
        xmin=_nullable("long"),
    ),
    transaction=_nullable(_record("block", id="string", total_order="long", data_collection_order="long")),
    op="string",
    ts_ms=_nullable("long"),
)


def avro_of(event: bytes, size: int) -> bytes:
    """Return the event in Avro, with a longer note: so many bytes, too."""
    document = json.loads(event)
    row = document["before"] or document["after"]
    row["note"] += "x" * (size - len(_encoded(document)))
    return _encoded(document)


def _encoded(document: dict[str, object]) -> bytes:
    output = io.BytesIO()
    fastavro.schemaless_writer(output, fastavro.parse_schema(AVRO_SCHEMA), document)
    return join(SCHEMA_ID, output.getvalue())


def values_of(kind: str, size: int) -> list[bytes]:
    """Return ten values, which records have in turn."""
    if kind == PLAIN:
        return [value_of(size)]
    update, deletion = event_of(size, "u"), event_of(size, "d")
    if kind == AVRO:
        update, deletion = avro_of(update, size), avro_of(deletion, size)
    return [update] * 9 + [deletion]


def measure(kind: str, chosen: argparse.Namespace) -> tuple[float, dict[str, float]]:
    """Return how long a warm job takes for the backlog, and how long each part computes."""
    values = values_of(kind, chosen.value_bytes)
    envelope = "" if kind == PLAIN else 'envelope = "debezium"\n'
    if kind == AVRO:
        envelope += 'value_format = "registry"\n'
    config = CONFIG.format(partitions=LAYOUT.partition_count, stripes=LAYOUT.stripes) + envelope
    with (
        RegistryDouble() as registry,
        running(configured(config, chosen), KEYLANE_SCHEMA_REGISTRY_URL=registry.url) as (stack, lanes),
    ):
        registry.has(f"/schemas/ids/{SCHEMA_ID}", {"schema": json.dumps(AVRO_SCHEMA)})
        job_seconds(stack, lanes, 0, chosen.warm_up, values)
        return job_seconds(stack, lanes, chosen.warm_up, chosen.records, values)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--warm-up", type=int, default=1_500_000)
    parser.add_argument("--value-bytes", type=int, default=450)
    add_settings(parser)
    chosen = parse(parser, arguments)
    found = {kind: measure(kind, chosen) for kind in (PLAIN, EVENTS, AVRO)}
    report(
        "events",
        "records/s",
        [ResultRow(kind, {"records/s": chosen.records / took_s}) for kind, (took_s, _) in found.items()],
        reference=PLAIN,
        settings=vars(chosen),
        facts={
            f"{kind}: CPU of {part}, us a record": round(computed / chosen.records * 1e6, 2)
            for kind, (_, cpu_s) in found.items()
            for part, computed in cpu_s.items()
        },
        aim="0.5x of plain values in JSON, 0.4x in Avro",
    )


if __name__ == "__main__":
    main()
