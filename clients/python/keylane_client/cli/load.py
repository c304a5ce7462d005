"""`keylane load`: write the rows of a file to a topic, a JSON object each.

1. Read a batch of rows. 2. Push it. Push again, from the first record that failed, what may succeed later:
in this order the last row of a key stays the last. 3. Save how far the file is done. At the end of the file,
wait until the state has the last record of each partition.
A run that breaks between 2 and 3 writes the batch again: the state is the same, the log has it twice.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from keylane_client import KeylaneError, NewRecord, Position, RetryPolicy, Topic, WriteFailed, Written
from keylane_client.cli.access import Remote, with_remote
from keylane_client.cli.errors import BadArgument, CommandFailed, ExitCode
from keylane_client.cli.load_rows import (
    Row,
    Rows,
    format_of,
    open_with_progress,
    read_csv,
    read_json_lines,
    read_parquet,
    render_key,
    render_value,
)
from keylane_client.cli.load_state import LoadIdentity, LoadState
from keylane_client.cli.load_wait import wait_readable
from keylane_client.cli.printing import print_json, printable

MAX_BATCH = 10_000
REQUEST_BYTES = 6_000_000
"""Of the records of a request, in base64: the service takes bodies of 6 MiB."""
_FIELDS_BYTES = 200
"""Of a record in a request, beside its key and value."""
RETRY_S = 120.0
"""How long a batch is tried again while the service cannot take it."""

Report = Callable[[str], None]
RecordOf = Callable[[dict[str, Any]], NewRecord]
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(slots=True)
class LoadCounts:
    """Rows written and skipped by this run; `resumed`: those of earlier ones.

    `readable`: the state has all that this run wrote.
    """

    written: int = 0
    skipped: int = 0
    resumed: int = 0
    readable: bool = False


class RowLoader:
    """Writes rows to a topic, in batches. `report` is called with each row that is skipped, and why.

    `record_of` makes a row's values a record, and raises ValueError where they are none.
    """

    def __init__(self, topic: Topic, record_of: RecordOf, *, skip_errors: bool, report: Report) -> None:
        self._topic = topic
        self._record_of_values = record_of
        self._skip_errors = skip_errors
        self._report = report
        self._policy = RetryPolicy()
        self.counts = LoadCounts()
        self.last: dict[int, tuple[str | bytes, Position]] = {}
        """Partition -> key and position of the last record that was written to it."""

    def write(self, rows: Sequence[Row]) -> None:
        """Write a batch, in one request or several.

        Raises CommandFailed at a row that is wrong, unless errors are to be skipped.
        """
        records: list[NewRecord] = []
        locations: list[str] = []
        size = 0
        for row in rows:
            record = self._record_of(row)
            if record is None:
                continue
            if (own := _size_of(record)) > REQUEST_BYTES:
                self._refuse(row.location, f"it has {own} bytes in a request, which takes {REQUEST_BYTES}")
                continue
            if size + own > REQUEST_BYTES:
                self._write(records, locations)
                records, locations, size = [], [], 0
            records.append(record)
            locations.append(row.location)
            size += own
        if records:
            self._write(records, locations)

    def _write(self, records: list[NewRecord], locations: list[str]) -> None:
        for location, failed in zip(locations, self._push(records), strict=True):
            if failed is None:
                self.counts.written += 1
            elif failed.is_retriable:
                raise CommandFailed(f"{location}: {failed.message}; run the same command to go on")
            elif failed.is_superseded:
                self._skip(location, failed.message)
            else:
                self._refuse(location, failed.message)

    def _push(self, records: list[NewRecord]) -> list[WriteFailed | None]:
        """Push records until none may succeed later, or RETRY_S are over. Returns why each one failed."""
        results: list[WriteFailed | None] = []
        until_s = time.monotonic() + RETRY_S
        for attempt in count(1):
            error: KeylaneError | None = None
            try:
                self._push_rest(records, results)
            except KeylaneError as failure:
                error = failure
            is_over = time.monotonic() >= until_s
            if error is not None and (is_over or not self._policy.is_transient(error)):
                raise error
            if error is None and (is_over or _first_retriable(results) == len(results)):
                break
            time.sleep(self._policy.wait_s(error, attempt))
        return results

    def _push_rest(self, records: list[NewRecord], results: list[WriteFailed | None]) -> None:
        """Push again from the first record that may succeed later; replace its result and those behind it."""
        done = _first_retriable(results)
        answers = self._topic.push(records[done:])
        results[done:] = [each if isinstance(each, WriteFailed) else None for each in answers]
        for record, each in zip(records[done:], answers, strict=False):
            self._note(record, each)

    def _note(self, record: NewRecord, answer: Written | WriteFailed) -> None:
        if isinstance(answer, WriteFailed) or answer.position is None or record.key is None:
            return
        partition = answer.position.partition
        if partition not in self.last or self.last[partition][1] < answer.position:
            self.last[partition] = record.key, answer.position

    def _record_of(self, row: Row) -> NewRecord | None:
        fault = row.fault
        if fault is None:
            try:
                return self._record_of_values(row.values)
            except ValueError as error:
                fault = str(error)
            except RecursionError:
                fault = "it is nested too deeply"
        self._refuse(row.location, fault)
        return None

    def _refuse(self, location: str, fault: str) -> None:
        if not self._skip_errors:
            raise BadArgument(f"{location}: {fault} (--on-error skip reports such rows and goes on)")
        self._skip(location, fault)

    def _skip(self, location: str, why: str) -> None:
        self.counts.skipped += 1
        self._report(f"{location}: {why}; skipped")


def _size_of(record: NewRecord) -> int:
    """Return how many bytes a record takes in a request, about."""
    return (len(record.key or "") + len(record.value or b"")) * 4 // 3 + _FIELDS_BYTES


def keyed_by(column: str) -> RecordOf:
    """Return what makes a row a JSON object under one of its columns."""

    def record_of(values: dict[str, Any]) -> NewRecord:
        key = values.get(column)
        if key is None or key in ("", b""):
            columns = ", ".join(values) or "nothing"
            raise ValueError(f"it has no {column!r}, which is to be the key: it has {columns}")
        return NewRecord(render_key(key), render_value(values))

    return record_of


def with_load_options(what: str) -> Callable[[Command], Command]:
    """Return what gives a command the options of how a file is written. `what`: the file's parts."""
    options = (
        click.option(
            "--batch",
            type=click.IntRange(1, MAX_BATCH),
            default=500,
            show_default=True,
            help=f"{what.capitalize()} a request.",
        ),
        click.option("--on-error", type=click.Choice(["stop", "skip"]), default="stop", show_default=True),
        click.option("--restart", is_flag=True, help="Begin again, not where an earlier run broke off."),
        click.option(
            "--wait/--no-wait", default=True, show_default=True, help=f"Until the {what} can be read."
        ),
    )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _first_retriable(results: list[WriteFailed | None]) -> int:
    return next((i for i, each in enumerate(results) if each and each.is_retriable), len(results))


@click.command()
@with_remote
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--topic", required=True, help="Where the rows go.")
@click.option("--key", required=True, help="The column or field that is the record's key.")
@click.option(
    "--format", "file_format", type=click.Choice(["csv", "jsonl", "parquet"]), help="Default: by name."
)
@with_load_options("rows")
def load(  # noqa: PLR0913 (the options of a command)
    remote: Remote,
    *,
    file: Path,
    topic: str,
    key: str,
    file_format: str | None,
    batch: int,
    on_error: str,
    restart: bool,
    wait: bool,
) -> None:
    """Write each row of FILE (CSV, JSON lines, Parquet) as a JSON object; then wait until all can be read.

    If it breaks off, the same command goes on with the batch that was not acknowledged.
    """
    kind = format_of(file, file_format)
    state = LoadState(file, LoadIdentity.of(file, remote.url, topic, key))
    if restart:
        state.remove()
    load_file(
        remote,
        LoadedFile(file, lambda progress: _read(file, kind, progress), state, batch),
        topic,
        keyed_by(key),
        skip_errors=on_error == "skip",
        wait=wait,
    )


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """A file, its rows, how far an earlier run came, and how many rows go into a request."""

    path: Path
    rows: Callable[[Progress], Rows]
    state: LoadState
    batch: int


def load_file(
    remote: Remote, file: LoadedFile, topic: str, record_of: RecordOf, *, skip_errors: bool, wait: bool
) -> None:
    """Write the rows of a file, wait until they can be read, and print how many there are."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with remote.client() as client, _progress(console) as progress:
        loader = RowLoader(
            client.topic(topic),
            record_of,
            skip_errors=skip_errors,
            report=lambda line: progress.console.print(printable(line), markup=False),
        )
        loader.counts.resumed = file.state.load_rows()
        try:
            run_load(file.rows(progress), loader, file.state, file.batch)
        except KeyboardInterrupt:
            progress.console.print(_stopped(loader.counts, file.state))
            sys.exit(ExitCode.INTERRUPTED)
        except UnicodeDecodeError as error:
            raise BadArgument(f"{file.path} is not UTF-8: {error}") from error
        if wait:
            _wait(client.topic(topic), loader, console)
    _print_counts(remote, loader.counts)


def run_load(rows: Rows, loader: RowLoader, state: LoadState, batch: int) -> None:
    """Write all rows but those that an earlier run has done; save after each batch how far it is."""
    done = sum(1 for _ in islice(rows, loader.counts.resumed))
    while chunk := list(islice(rows, batch)):
        loader.write(chunk)
        done += len(chunk)
        state.save_rows(done)
    state.remove()


def _stopped(counts: LoadCounts, state: LoadState) -> str:
    """Say how far a run is that was stopped: what it was about to write may be in Kafka, too."""
    earlier = f", {counts.resumed} were done before" if counts.resumed else ""
    rest = "goes on from here" if state.is_kept else "begins again: of a pipe nothing is kept"
    skipped = f", {counts.skipped} skipped" if counts.skipped else ""
    return f"Stopped: at least {counts.written} rows are written{skipped}{earlier}. The same command {rest}."


def _wait(topic: Topic, loader: RowLoader, console: Console) -> None:
    try:
        reason = wait_readable(topic, loader.last.values(), loader.counts.written)
    except KeyboardInterrupt:
        console.print("Stopped. All rows are written.")
        sys.exit(ExitCode.INTERRUPTED)
    loader.counts.readable = reason is None
    if reason is not None:
        why = f"The rows are in Kafka, but cannot be read here: {reason}"
        console.print(printable(why), markup=False)


def _read(file: Path, kind: str, progress: Progress) -> Rows:
    if kind == "parquet":
        return progress.track(read_parquet(file), description=printable(file.name))  # type: ignore[return-value]
    return (read_csv if kind == "csv" else read_json_lines)(open_with_progress(file, progress))


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),  # a file's name
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def _print_counts(remote: Remote, counts: LoadCounts) -> None:
    if remote.as_json:
        print_json(counts)
        return
    earlier = f", {counts.resumed} in an earlier run" if counts.resumed else ""
    click.echo(f"{counts.written} rows written, {counts.skipped} skipped{earlier}")
