"""A backlog of change events into the lanes of a warm job, beside values of the same size in a plain topic.

As bench_ingest.py, once with `envelope = "debezium"` and once without, each on a stack of its own. Of the
events one in ten deletes its row.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench_ingest import CONFIG, LAYOUT, job_seconds, running, value_of
from harness import ResultRow, add_settings, configured, parse, report

if TYPE_CHECKING:
    from collections.abc import Sequence

PLAIN, EVENTS = "plain values", "change events in JSON"
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
    """Return an event of this many bytes."""
    row = {"id": 1, "note": ""}
    before, after = (row, None) if operation == "d" else (None, row)
    event = {"before": before, "after": after, "source": SOURCE, "transaction": None, "op": operation}

    def text() -> bytes:
        return json.dumps(event | {"ts_ms": 1795670994101}, separators=(",", ":")).encode()

    if size < len(text()):
        raise SystemExit(f"an event has {len(text())} bytes at least")
    row["note"] = "x" * (size - len(text()))
    return text()


def values_of(kind: str, size: int) -> list[bytes]:
    """Return ten values, which records have in turn."""
    if kind == PLAIN:
        return [value_of(size)]
    return [event_of(size, "u")] * 9 + [event_of(size, "d")]


def measure(kind: str, chosen: argparse.Namespace) -> tuple[float, dict[str, float]]:
    """Return how long a warm job takes for the backlog, and how long each part computes."""
    values = values_of(kind, chosen.value_bytes)
    envelope = 'envelope = "debezium"\n' if kind == EVENTS else ""
    config = CONFIG.format(partitions=LAYOUT.partition_count, stripes=LAYOUT.stripes) + envelope
    with (
        tempfile.TemporaryDirectory(prefix="keylane-bench-") as folder,
        running(Path(folder), configured(config, chosen)) as (stack, lanes),
    ):
        job_seconds(stack, lanes, 0, chosen.warm_up, values)
        return job_seconds(stack, lanes, chosen.warm_up, chosen.records, values)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--warm-up", type=int, default=1_500_000)
    parser.add_argument("--value-bytes", type=int, default=450)
    add_settings(parser)
    chosen = parse(parser, arguments)
    found = {kind: measure(kind, chosen) for kind in (PLAIN, EVENTS)}
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
        aim="0.5x of plain values",
    )


if __name__ == "__main__":
    main()
