"""`keylane views` and `windows`."""

from datetime import datetime, timezone
from itertools import islice

import click

from keylane_client.cli.access import Remote, with_remote
from keylane_client.cli.errors import BadArgument


@click.command()
@with_remote
def views(remote: Remote) -> None:
    """List the views: topic, window and columns, or why one does not run."""
    with remote.client() as client:
        for each in client.views():
            cells = [each["view"]]
            if "topic" in each:
                cells += [each["topic"], each["window"]["kind"], ",".join(each["columns"])]
            if "stopped" in each:
                cells.append(f"stopped: {each['stopped']}")
            remote.show(each, *cells)


@click.command()
@with_remote
@click.argument("view")
@click.argument("key", required=False)
@click.option("--prefix", help="Without KEY: windows of keys that begin with this.")
@click.option("--from", "start", help="Windows that begin from this time on: ISO 8601, or ms since 1970.")
@click.option("--to", "stop", help="Windows that begin before this time.")
@click.option("--final", is_flag=True, help="Without windows that may still change.")
@click.option("-n", "--limit", type=click.IntRange(1), help="Print so many at most.")
def windows(  # noqa: PLR0913 (the options of a command)
    remote: Remote,
    *,
    view: str,
    key: str | None,
    prefix: str | None,
    start: str | None,
    stop: str | None,
    final: bool,
    limit: int | None,
) -> None:
    """Print VIEW's windows: of KEY, or of all keys in their order.

    A line has the key, the window's start and end, and its values.
    """
    if key is not None and prefix is not None:
        raise BadArgument("KEY and --prefix exclude each other")
    page_size = min(limit or 1000, 1000)
    with remote.client() as client:
        wanted = client.view(view)
        found = (
            wanted.scan(prefix=prefix, start=start, stop=stop, final=final, page_size=page_size)
            if key is None
            else wanted.windows(key, start=start, stop=stop, final=final, page_size=page_size)
        )
        for each in islice(found, limit):
            times = [] if each.start_ms is None else [_time(each.start_ms), _time(each.end_ms)]
            remote.show(each, each.key, *times, each.values)


def _time(at_ms: int | None) -> str:
    """Return a time as ISO 8601, where a year has four digits; else its ms."""
    try:
        return datetime.fromtimestamp((at_ms or 0) / 1000, timezone.utc).isoformat()
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
