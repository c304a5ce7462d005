"""`keylane topics`, `get`, `join`, `put`, `delete`, `scan`, `find`, `count` and `history`."""

import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import click

from keylane_client import Position, Record
from keylane_client.cli.access import Remote, with_remote
from keylane_client.cli.conditions import parse_conditions, split_fields
from keylane_client.cli.errors import BadArgument, ExitCode
from keylane_client.cli.printing import print_json, printable_bytes

_limit = click.option("-n", "--limit", type=click.IntRange(1), help="Print so many at most.")
_fields = click.option("--fields", default="", help="Only these fields of JSON objects, as in a,b.c")
_min_position = click.option(
    "--min-position", type=Position.parse, help="Wait until the state has it: PARTITION:OFFSET."
)
_wait = click.option(
    "--wait", "wait_s", type=click.FloatRange(0), help="Seconds to wait for that, 20 at most."
)
_event = click.option("--event", is_flag=True, help="Of a database's topic: change events, not their rows.")


@click.command()
@with_remote
@click.option("--prefix", default="", help="Topics whose names begin with this.")
def topics(remote: Remote, prefix: str) -> None:
    """List Kafka's topics and their partition counts."""
    with remote.client() as client:
        for each in client.topics(prefix=prefix):
            remote.show(each, each.topic, each.partitions)


@click.command()
@with_remote
@click.argument("topic")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@_min_position
@_wait
@click.option("--at", help="As of a time (ISO 8601, or ms since 1970) or a position.")
@_fields
@_event
def get(  # noqa: PLR0913 (the options of a command)
    remote: Remote,
    *,
    topic: str,
    keys: tuple[str, ...],
    min_position: Position | None,
    wait_s: float | None,
    at: str | None,
    fields: str,
    event: bool,
) -> None:
    """Print the record of KEY: its value, byte for byte; with --json also position, age and watermark.

    To a terminal control characters are printed as escapes: to have them, write to a file or a pipe. Of
    several keys each value is behind its key, in a line. The exit code is 3 if there is no record.
    """
    if len(keys) > 1 and (min_position is not None or wait_s is not None or at is not None):
        raise BadArgument("--min-position, --wait and --at are for one key")
    with remote.client() as client:
        wanted = client.topic(topic).reading(fields=split_fields(fields), event=event)
        if len(keys) > 1:
            _print_many(remote, wanted.get_many(keys))
            return
        if at is not None:
            wanted = wanted.at(at)
        (key,) = keys
        record = wanted.get(key, min_position=min_position, wait_s=wait_s)
        if record is None:
            wanted[key]
        elif remote.as_json:
            print_json(record)
        elif sys.stdout.isatty():
            click.echo(printable_bytes(record.raw or b""))
        else:
            click.echo(record.raw, nl=record.value_format != "base64")


def _print_many(remote: Remote, found: Mapping[Any, Record | None]) -> None:
    """Print what each key has; the exit code is 3 if one has nothing."""
    for key, record in found.items():
        if record is None:
            remote.show({"key": key, "absent": True}, key, "absent")
        else:
            remote.show(record, record.key, record.value)
    if None in found.values():
        sys.exit(ExitCode.NOT_FOUND)


@click.command()
@with_remote
@click.argument("key")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC TOPIC...")
def join(remote: Remote, key: str, topics: tuple[str, ...]) -> None:
    """Print KEY's records of 2 to 10 topics, read at one moment."""
    with remote.client() as client:
        found = client.join(key, topics)
    if remote.as_json:
        print_json(found)
        return
    for topic, record in found.records.items():
        remote.show(record, topic, "absent" if record is None else record.value)


@click.command()
@with_remote
@click.argument("topic")
@click.argument("key")
@click.argument("value", required=False)
@click.option("--idempotency-key", help="Written once, however often this is sent.")
@click.option("--schema", help="An id or latest: VALUE is JSON, written by it. raw: as it is, in any case.")
def put(
    remote: Remote,
    topic: str,
    key: str,
    value: str | None,
    idempotency_key: str | None,
    schema: str | None,
) -> None:
    """Write VALUE under KEY; without VALUE, what standard input has. Prints the position.

    @FILE is the content of a file, byte for byte.
    """
    data = _read_value(value)
    with remote.client() as client:
        written = client.topic(topic).put(key, data, idempotency_key=idempotency_key, schema=schema)
        remote.show(written, written.position or f"queued {written.queued_id}")


@click.command()
@with_remote
@click.argument("topic")
@click.argument("key")
@click.option("--idempotency-key", help="Written once, however often this is sent.")
def delete(remote: Remote, topic: str, key: str, idempotency_key: str | None) -> None:
    """Write a tombstone for KEY. Prints the position."""
    with remote.client() as client:
        written = client.topic(topic).delete(key, idempotency_key=idempotency_key)
        remote.show(written, written.position or f"queued {written.queued_id}")


@click.command()
@with_remote
@click.argument("topic")
@click.option("--prefix", help="Keys that begin with this.")
@click.option("--from", "start", help="Keys from this one on.")
@click.option("--to", "stop", help="Keys below this one.")
@click.option("--keys-only", is_flag=True, help="Keys without their records.")
@click.option("--at", help="As of a time: ISO 8601, or ms since 1970.")
@_fields
@_event
@_limit
def scan(  # noqa: PLR0913 (the options of a command)
    remote: Remote,
    *,
    topic: str,
    prefix: str | None,
    start: str | None,
    stop: str | None,
    keys_only: bool,
    at: str | None,
    fields: str,
    event: bool,
    limit: int | None,
) -> None:
    """Print keys and values in the keys' order. The topic needs index = true."""
    if prefix and (start or stop):
        raise BadArgument("--prefix and --from or --to exclude each other")
    with remote.client() as client:
        wanted = client.topic(topic).reading(fields=split_fields(fields), event=event)
        if at is not None:
            wanted = wanted.at(at)
        page_size = min(limit or 1000, 1000)
        if keys_only:
            for key in islice(wanted.keys(prefix=prefix, start=start, stop=stop, page_size=page_size), limit):
                remote.show(key, key)
            return
        for record in islice(wanted.scan(prefix=prefix, start=start, stop=stop, page_size=page_size), limit):
            remote.show(record, record.key, record.value)


@click.command()
@with_remote
@click.argument("topic")
@click.argument("conditions", nargs=-1, metavar="CONDITION...")
@click.option("--prefix", help="Keys that begin with this.")
@click.option("--order", help="The field that orders the records; from its highest value on as in -placed.")
@click.option("--count", "is_count", is_flag=True, help="Print how many records there are, without them.")
@_min_position
@_wait
@_fields
@_event
@_limit
def find(  # noqa: PLR0913 (the options of a command)
    remote: Remote,
    *,
    topic: str,
    conditions: tuple[str, ...],
    prefix: str | None,
    order: str | None,
    is_count: bool,
    min_position: Position | None,
    wait_s: float | None,
    fields: str,
    event: bool,
    limit: int | None,
) -> None:
    """Print keys and values of the records that meet all conditions on their fields.

    status=open: equal; amount=10..20, 10.. and ..<20: a range; name=Sm*: a prefix; amount=..: any value. The
    topic needs fields.
    """
    if is_count and limit is not None:
        raise BadArgument("--count counts all records: it has no --limit")
    if wait_s is not None and min_position is None:
        raise BadArgument("--wait is for --min-position")
    with remote.client() as client:
        found = (
            client.topic(topic)
            .reading(fields=split_fields(fields), event=event)
            .find(parse_conditions(conditions))
        )
        if prefix is not None:
            found = found.prefix(prefix)
        if order is not None:
            found = found.order_by(order)
        if min_position is not None:
            found = found.min_position(min_position, wait_s=wait_s)
        if is_count:
            number = found.count()
            remote.show(number, number)
            return
        for record in found.page_size(1000) if limit is None else found.limit(limit):
            remote.show(record, record.key, record.value)


@click.command()
@with_remote
@click.argument("topic")
def count(remote: Remote, topic: str) -> None:
    """Print how many keys TOPIC has. The topic needs index = true."""
    with remote.client() as client:
        found = client.topic(topic).count()
        remote.show(found, found)


@click.command()
@with_remote
@click.argument("topic")
@click.argument("key")
@click.option("--from", "start", help="Records from this time on: ISO 8601, or ms since 1970.")
@click.option("--to", "stop", help="Records before this time.")
@_event
@_limit
def history(  # noqa: PLR0913 (the options of a command)
    remote: Remote,
    *,
    topic: str,
    key: str,
    start: str | None,
    stop: str | None,
    event: bool,
    limit: int | None,
) -> None:
    """Print KEY's records, newest first. The topic needs history_count or history_age."""
    with remote.client() as client:
        wanted = client.topic(topic).reading(event=event)
        for entry in islice(wanted.history(key, start=start, stop=stop), limit):
            value = "deleted" if entry.is_deleted else entry.value
            remote.show(entry, entry.timestamp_ms, entry.position, value)


def _read_value(value: str | None) -> bytes:
    if value is None:
        if sys.stdin is None:
            raise BadArgument("standard input is closed: give the value as an argument")
        return sys.stdin.buffer.read()
    if not value.startswith("@"):
        return value.encode(errors="surrogateescape")  # the bytes that the shell has given
    try:
        return Path(value[1:]).read_bytes()
    except OSError as error:
        advice = "a value that begins with @ goes by standard input"
        raise BadArgument(f"{value[1:]!r} can't be read: {error.strerror} ({advice})") from error
