"""`keylane import`: write the records of a file of `keylane export`, as `keylane load` writes rows."""

import base64
from functools import partial
from pathlib import Path
from typing import Any

import click

from keylane_client import NewRecord
from keylane_client.cli.access import Remote, with_remote
from keylane_client.cli.load import LoadedFile, load_file, with_load_options
from keylane_client.cli.load_rows import Rows, open_with_progress, read_json_lines
from keylane_client.cli.load_state import LoadIdentity, LoadState
from keylane_client.cli.printing import render_json

_EXPORTED = "(exported)"
"""In the place of a load's column, in what an earlier run has left."""


def record_of_line(line: dict[str, Any], *, has_timestamps: bool = True) -> NewRecord:
    """Return the record of a line as `export_files.line_of_record` has it. Raises ValueError."""
    key, value, form = (line.get(name) for name in ("key", "value", "value_format"))
    if not isinstance(key, str) or not key:
        fault = "not a string: keys with types are written in a form that the file lacks"
        raise ValueError(f"its key is {'empty: the service writes none' if key == '' else fault}")
    timestamp = line.get("timestamp") if has_timestamps else None
    if timestamp is not None and (not isinstance(timestamp, int) or isinstance(timestamp, bool)):
        raise ValueError("its timestamp is not a number of milliseconds")
    is_binary = line.get("key_format") == "base64"
    return NewRecord(_decoded(key) if is_binary else key, _value_of(value, form), timestamp_ms=timestamp)


def _value_of(value: Any, form: Any) -> bytes:
    if form == "json":
        return render_json(value).encode()
    if form in ("text", "base64") and isinstance(value, str):
        return value.encode("utf-8", "surrogatepass") if form == "text" else _decoded(value)
    raise ValueError(
        f"its value_format is {form!r}: a record of an export with its value has json, text or base64"
    )


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError(f"{text:.40} is not base64") from error


@click.command("import")
@with_remote
@click.argument("topic")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@with_load_options("records")
@click.option(
    "--timestamps/--no-timestamps",
    default=True,
    show_default=True,
    help="Keep the records' own; else Kafka's time of now.",
)
def import_records(  # noqa: PLR0913 (the options of a command)
    remote: Remote,
    *,
    topic: str,
    file: Path,
    batch: int,
    on_error: str,
    timestamps: bool,
    restart: bool,
    wait: bool,
) -> None:
    """Write the records of FILE, which export wrote as JSON lines, to TOPIC; then wait until all can be read.

    Other records of TOPIC stay. If it breaks off, the same command goes on with the batch that was not
    acknowledged.
    """
    state = LoadState(file, LoadIdentity.of(file, remote.url, topic, _EXPORTED))
    if restart:
        state.remove()

    def read(progress: Any) -> Rows:
        return read_json_lines(open_with_progress(file, progress))

    load_file(
        remote,
        LoadedFile(file, read, state, batch),
        topic,
        partial(record_of_line, has_timestamps=timestamps),
        skip_errors=on_error == "skip",
        wait=wait,
    )
