"""`keylane watch` and `keylane tail`: they print what arrives, until Ctrl-C ends them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import click

from keylane_client import Absent
from keylane_client.cli.access import Remote, with_remote

_limit = click.option("-n", "--limit", type=click.IntRange(1), help="End after so many.")


@click.command()
@with_remote
@click.argument("topic")
@click.argument("key")
@_limit
def watch(remote: Remote, topic: str, key: str, limit: int | None) -> None:
    """Print KEY's record, then each change, until Ctrl-C (or so many of them)."""
    with _until_interrupted(), remote.client() as client:
        for change in islice(client.topic(topic).watch(key), limit):
            if isinstance(change, Absent):
                remote.show(change, change.watermark or "-", "absent")
            else:
                remote.show(change, change.position, change.value)
            sys.stdout.flush()


@click.command()
@with_remote
@click.argument("topic")
@click.option(
    "--from",
    "start",
    default="latest",
    show_default=True,
    help="Where to begin: latest, earliest, or a time (ISO 8601, or ms since 1970).",
)
@click.option(
    "--pause",
    "pause_s",
    type=click.FloatRange(0.1, 60),
    default=1.0,
    show_default=True,
    help="Seconds between polls.",
)
@_limit
def tail(remote: Remote, topic: str, start: str, pause_s: float, limit: int | None) -> None:
    """Print TOPIC's records as they arrive in Kafka: time, position, key and value, until Ctrl-C.

    Whether the state of the topic is kept does not matter. Each partition is polled.
    """
    with _until_interrupted(), remote.client() as client:
        for record in islice(client.topic(topic).tail(start, pause_s=pause_s), limit):
            key = "-" if record.key is None else record.key
            value = "deleted" if record.value_format == "null" else record.value
            remote.show(record, record.timestamp_ms, record.position, key, value)
            sys.stdout.flush()


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """End without an error at Ctrl-C: it is how such a command is meant to end."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(err=True)
