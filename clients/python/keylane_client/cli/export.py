"""`keylane export`: the records of a topic, all as of one position, into a file.

The file is complete or is not there: what is written goes into a file beside it until then.
"""

import secrets
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from keylane_client import Snapshot
from keylane_client.cli.access import Remote, with_remote
from keylane_client.cli.conditions import parse_conditions, split_fields
from keylane_client.cli.errors import BadArgument, CommandFailed
from keylane_client.cli.export_files import (
    LEFT_IN_KAFKA,
    LinesFile,
    RecordFile,
    TableFile,
    write_csv,
    write_parquet,
)
from keylane_client.cli.load_rows import format_of
from keylane_client.cli.parquet import require_pyarrow

UNFINISHED = ".keylane-export"


@click.command()
@with_remote
@click.argument("topic")
@click.argument("conditions", nargs=-1, metavar="CONDITION...")
@click.option(
    "-o", "--output", "path", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The file."
)
@click.option(
    "--format", "file_format", type=click.Choice(["csv", "jsonl", "parquet"]), help="Default: by name."
)
@click.option("--prefix", help="Keys that begin with this.")
@click.option("--fields", default="", help="Only these fields of JSON objects, as in a,b.c")
@click.option("--key", default="key", show_default=True, help="The key's column in a table.")
def export(  # noqa: PLR0913 (the options of a command)
    remote: Remote,
    *,
    topic: str,
    conditions: tuple[str, ...],
    path: Path,
    file_format: str | None,
    prefix: str | None,
    fields: str,
    key: str,
) -> None:
    """Write TOPIC's records as of one position to a file: JSON lines, which import reads, CSV or Parquet.

    CONDITION: as of find. Needs an API of `keylane serve`.
    """
    kind = format_of(path, file_format)
    if kind == "parquet":
        require_pyarrow()
    if path.exists() and not path.is_file():
        raise BadArgument(f"{path} is a device or a pipe: a file would take its place")
    # Its own name, so that another export into the same file has its own, too.
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    with remote.client() as client, _progress() as progress:
        chosen = client.topic(topic).reading(fields=split_fields(fields))
        snapshot = chosen.snapshot(prefix=prefix, where=parse_conditions(conditions))
        try:
            with closing(_open(unfinished, kind, key)) as file:
                counts = write_records(snapshot, file, progress)
            unfinished.replace(path)
        except OSError as error:
            raise CommandFailed(f"{path} can't be written: {error.strerror}") from error
        finally:
            unfinished.unlink(missing_ok=True)
    remote.show(
        {"records": counts.written, "at": str(snapshot.at)}, f"{counts.written} records", f"at {snapshot.at}"
    )
    if counts.left_in_kafka:
        raise CommandFailed(
            f"{path} lacks values of {counts.left_in_kafka} records: they are too large, and left in Kafka"
        )


@dataclass(slots=True)
class ExportCounts:
    """Records in the file; `left_in_kafka`: those of them whose values the service does not have."""

    written: int = 0
    left_in_kafka: int = 0


def write_records(snapshot: Snapshot, file: RecordFile, progress: Progress) -> ExportCounts:
    """Write all records of a snapshot, and show how many of its lanes have been read."""
    counts = ExportCounts()
    task = progress.add_task("lanes", total=None)
    for record in snapshot:
        file.add(record)
        counts.written += 1
        counts.left_in_kafka += record.value_format == LEFT_IN_KAFKA
        progress.update(task, total=snapshot.lanes, completed=snapshot.lanes_read)
    progress.update(task, total=snapshot.lanes, completed=snapshot.lanes)
    file.finish()
    return counts


def _open(path: Path, kind: str, key: str) -> RecordFile:
    if kind == "jsonl":
        return LinesFile(path)
    return TableFile(path, key, write_csv if kind == "csv" else write_parquet)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, highlight=False, soft_wrap=True),
    )
