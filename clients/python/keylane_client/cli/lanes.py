"""`keylane lanes`: a topic's partitions on slots on shards, and how far behind Kafka each is."""

import click
from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

from keylane_client import Lane, TopicLayout
from keylane_client.cli.access import Remote, with_remote
from keylane_client.cli.printing import print_json

_SLOTS = 16384
_SLOT_BAR_CELLS = 16
_OLD_S = 60


@click.command()
@with_remote
@click.argument("topic")
def lanes(remote: Remote, topic: str) -> None:
    """Show TOPIC's lanes: partition, slot, shard, records applied, lag and age."""
    with remote.client() as client:
        layout = client.topic(topic).layout()
    if remote.as_json:
        print_json(dict(layout.document))
    else:
        render_layout(layout, Console(highlight=False))


def render_layout(layout: TopicLayout, console: Console) -> None:
    """Print the layout: a table for each shard, the lanes by slot. A narrow terminal gets no bars."""
    age = "unknown" if layout.age is None else f"{layout.age.total_seconds():.1f} s"
    console.print(
        f"[bold]{layout.topic}[/]: {layout.partitions} partitions, stripes in each: {layout.stripes};"
        f" lag {layout.lag}, age {age}"
    )
    shards: dict[str, list[Lane]] = {}
    for lane in sorted(layout.lanes, key=lambda each: each.slot):
        shards.setdefault(lane.shard or "no node", []).append(lane)
    has_bars = console.width >= 80  # noqa: PLR2004 (columns)
    for shard, held in shards.items():
        behind: dict[int, int] = {}  # all stripes of a partition read the same records
        for lane in held:
            behind[lane.partition] = max(lane.lag, behind.get(lane.partition, 0))
        console.print(f"\n[bold]shard {shard}[/]  {len(held)} lanes, lag {sum(behind.values())}")
        console.print(_table(held, has_bars=has_bars))


def _table(held: list[Lane], *, has_bars: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("lane", "slot", "next", "lag", "age", "state"):
        table.add_column(name, justify="left" if name in {"lane", "state"} else "right")
    if has_bars:
        table.add_column("slots 0 to 16383", width=_SLOT_BAR_CELLS)
    for lane in held:
        seconds = None if lane.age is None else lane.age.total_seconds()
        cells: list[str | Text | Bar] = [
            f"{lane.partition}.{lane.stripe}",
            str(lane.slot),
            str(lane.next_offset),
            Text(str(lane.lag), style="yellow" if lane.lag else ""),
            Text(
                "-" if seconds is None else f"{seconds:.1f} s", style="red" if (seconds or 0) > _OLD_S else ""
            ),
            _state(lane),
        ]
        if has_bars:
            cells.append(Bar(_SLOTS, lane.slot, lane.slot + _SLOTS / _SLOT_BAR_CELLS, width=_SLOT_BAR_CELLS))
        table.add_row(*cells)
    return table


def _state(lane: Lane) -> Text:
    flags = [("building", lane.is_building, "yellow"), ("incomplete", lane.is_incomplete, "red")]
    flags.append(("strays", lane.has_strays, "cyan"))
    shown = [(f"{name} ", style) for name, is_so, style in flags if is_so]
    return Text.assemble(*shown) if shown else Text("complete", style="green")
