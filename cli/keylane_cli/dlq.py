"""`keylane dlq list`, `show` and `replay`: the dead letters of the write-ahead log."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from keylane_client.cli.printing import line_of, print_json, printable, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keylane.model.records import NewRecord
    from keylane_cli.dead_letters import DeadLetter, DeadLetterQueue
    from keylane_cli.replay import ReplayReport

_SHOWN = 200
"""Characters of a value that people see; JSON has all of it."""


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that all three have."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, a document a line."),
        click.option("--topic", help="Only the messages of this topic."),
        click.option(
            "--queue-url",
            "url",
            envvar="KEYLANE_DLQ_URL",
            show_envvar=True,
            required=True,
            help="The dead-letter queue: the stack's output DeadLettersUrl.",
        ),
    ):
        command = option(command)
    return command


@click.group()
def dlq() -> None:
    """Look at the dead letters of the write-ahead log, and move them back."""


@dlq.command("list")
@_options
def list_letters(url: str, topic: str | None, *, as_json: bool) -> None:
    """Count the dead letters by topic and reason. They stay in the queue."""
    counts: dict[tuple[str, str], list[DeadLetter]] = defaultdict(list)
    with _opened(url) as queue:
        total = queue.count()
        for letter in _letters(queue, topic):
            counts[letter.kind].append(letter)
    for (name, reason), letters in sorted(counts.items()):
        oldest_ms = min(letter.sent_ms for letter in letters)
        found = {
            "topic": name,
            "reason": reason,
            "messages": len(letters),
            "records": sum(letter.record_count for letter in letters),
            "oldest_ms": oldest_ms,
        }
        if as_json:
            print_json(found)
        else:
            click.echo(
                f"{found['messages']:>6} messages  {found['records']:>6} records  {_kind(name, reason)}"
                f"  since {_time(oldest_ms)}"
            )
    seen = sum(map(len, counts.values()))
    if not as_json and not seen:
        click.echo("no dead letters" + (f" of topic {topic}" if topic else ""))
    if topic is None and seen < total:
        more = f"{total - seen} more are behind these: of each group, SQS shows the first ten"
        click.echo(more, err=True)


@dlq.command()
@_options
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="Messages.")
def show(url: str, topic: str | None, limit: int, *, as_json: bool) -> None:
    """Print dead letters with their reasons and records. They stay in the queue."""
    with _opened(url) as queue:
        for letter in islice(_letters(queue, topic), limit):
            if as_json:
                print_json(_document_of(letter))
                continue
            click.echo(line_of(_time(letter.sent_ms), letter.topic, letter.reason, letter.detail))
            if letter.object_name:
                click.echo(f"    in the bucket: {printable(letter.object_name)}")
            for record in letter.records:
                key, value = _text(record.key), _text(record.value)
                click.echo(f"    {line_of(key or '-', _cut(value) if value is not None else 'deleted')}")


@dlq.command()
@_options
@click.option(
    "--to",
    "target",
    envvar="KEYLANE_QUEUE_URL",
    show_envvar=True,
    required=True,
    help="The write-ahead log: the stack's output LogQueueUrl.",
)
@click.option(
    "--superseded",
    is_flag=True,
    help="Also superseded records: a newer one of their key was written, and they turn it back.",
)
def replay(url: str, topic: str | None, target: str, *, as_json: bool, superseded: bool) -> None:
    """Move dead letters back into the write-ahead log, in order."""
    from keylane_cli import replay as moving  # noqa: PLC0415 - its imports take long

    request = moving.ReplayRequest(url, target, topic, superseded)
    report = moving.replay(request, os.environ, progress=_show_progress)
    click.echo(err=True)
    if as_json:
        print_json(
            {
                "moved": sum(report.moved.values()),
                "records": report.records,
                "left": sum(report.left.values()),
            }
        )
    else:
        _show_report(report)


@contextmanager
def _opened(url: str) -> Iterator[DeadLetterQueue]:
    from keylane_cli.dead_letters import DeadLetterQueue  # noqa: PLC0415 - its imports take long

    queue = DeadLetterQueue(url, os.environ)
    try:
        yield queue
    finally:
        queue.close()


def _letters(queue: DeadLetterQueue, topic: str | None) -> Iterator[DeadLetter]:
    while batch := queue.receive():
        yield from (letter for letter in batch if topic in {None, letter.topic})


def _document_of(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "sent_ms": letter.sent_ms,
        "topic": letter.topic,
        "reason": letter.reason,
        "detail": letter.detail,
        "object": letter.object_name,
        "records": [_record_of(each) for each in letter.records],
    }


def _record_of(record: NewRecord) -> dict[str, Any]:
    return {
        "key": _text_or_bytes(record.key),
        "value": _text_or_bytes(record.value),
        "partition": record.partition,
        "timestamp_ms": record.timestamp_ms,
        "headers": [{"name": name, "value": _text_or_bytes(value)} for name, value in record.headers],
    }


def _text_or_bytes(data: bytes | None) -> str | bytes | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return data


def _text(data: bytes | None) -> str | None:
    found = _text_or_bytes(data)
    return None if found is None else text_of(found)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _kind(topic: str, reason: str) -> str:
    """Return what a line says of a group of letters. Whoever may send to the queue wrote both."""
    return printable(f"topic {topic}  {reason}")


def _show_progress(report: ReplayReport) -> None:
    click.echo(f"\r{sum(report.moved.values())} messages", nl=False, err=True)


def _show_report(report: ReplayReport) -> None:
    for label, counts in (("moved", report.moved), ("left", report.left)):
        for (topic, reason), count in sorted(counts.items()):
            click.echo(f"{label:<5}  {count:>6} messages  {_kind(topic, reason)}")
    moved, left = sum(report.moved.values()), sum(report.left.values())
    click.echo(f"moved {moved} messages with {report.records} records; {left} are left")
    if any(reason.endswith("(superseded)") for _, reason in report.left):
        click.echo(
            "superseded: newer records of these keys were written; --superseded moves them all the same"
        )
