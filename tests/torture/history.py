"""The history of a schedule as JSON, for a replay: its steps, what each did and when, and every fault.

A schedule that failed is shortened: steps are dropped for as long as it still fails.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.torture.schedule import Event, Pause, Produce, Schedule, Step, Write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.torture.run import Outcome


_NAMES = ("step", "kind")
_KINDS = {"produce": Produce, "event": Event, "pause": Pause}


def write_history(folder: Path, configuration: str, outcome: Outcome) -> Path:
    """Write the history of a schedule below a folder; returns the file."""
    schedule = outcome.schedule
    file = history_file(folder, schedule)
    head = {
        "seed": schedule.seed,
        "run": schedule.run,
        "configuration": configuration,
        "seconds": round(outcome.seconds, 1),
        "faults": outcome.faults,
    }
    steps = [
        encode_step(step) | (outcome.log[number] if number < len(outcome.log) else {})
        for number, step in enumerate(schedule.steps)
    ]
    # A line for each step: a burst has thousands of writes.
    lines = ",\n".join(json.dumps(step, separators=(",", ":")) for step in steps)
    file.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "steps": [\n{lines}\n]}}\n', encoding="utf-8")
    return file


def history_file(folder: Path, schedule: Schedule) -> Path:
    """Where the history of a schedule is written."""
    return folder / f"history-{schedule.prefix[:-1].decode()}.json"


def describe_step(step: Step) -> str:
    """A step in one line."""
    match step:
        case Produce():
            kinds = Counter("tombstones" if write.size is None else "sets" for write in step.writes)
            how = f", {step.transaction} a transaction" if step.transaction else ""
            return f"write to {step.topic}: {', '.join(f'{n} {kind}' for kind, n in kinds.items())}{how}"
        case Event():
            fields = {name: value for name, value in encode_step(step).items() if name not in _NAMES}
            return f"{step.kind}: {', '.join(f'{name}={value}' for name, value in fields.items())}"
        case Pause():
            return f"pause {step.seconds} s"


def read_history(file: Path) -> tuple[str, Schedule]:
    """The name of the configuration and the schedule of a history file."""
    data = json.loads(file.read_text(encoding="utf-8"))
    steps = tuple(decode_step(step) for step in data["steps"])
    return data["configuration"], Schedule(data["seed"], steps, data["run"])


def encode_step(step: Step) -> dict[str, Any]:
    kind = next(name for name, class_ in _KINDS.items() if isinstance(step, class_))
    fields: dict[str, Any] = {
        field.name: getattr(step, field.name) for field in dataclasses.fields(step) if field.name != "writes"
    }
    if isinstance(step, Produce):
        fields["writes"] = [dataclasses.astuple(write) for write in step.writes]
    return {"step": kind} | fields


def decode_step(data: dict[str, Any]) -> Step:
    class_ = _KINDS[data["step"]]
    fields = {field.name: data[field.name] for field in dataclasses.fields(class_)}
    if class_ is Produce:
        fields["writes"] = tuple(Write(*write) for write in data["writes"])
    step: Step = class_(**fields)
    return step


TRIES = 12
SECONDS = 300


def shrink(
    schedule: Schedule, fails: Callable[[Schedule], bool], tries: int = TRIES, seconds: float = SECONDS
) -> Schedule:
    """Return the shortest schedule found that fails; `fails` runs one.

    First halves of the steps are left out, then quarters, at last single ones, within a number of tries and a
    time. Each try has keys of its own. A schedule that fails by chance may be kept longer than it need be.
    """
    until = time.monotonic() + seconds
    best, size, tried = schedule, len(schedule.steps) // 2, 0
    while size:
        begin = 0
        while begin < len(best.steps):
            if tried == tries or time.monotonic() > until:
                return best
            rest = best.steps[:begin] + best.steps[begin + size :]
            if not rest:
                break
            tried += 1
            candidate = dataclasses.replace(schedule, steps=rest, run=schedule.run + tried)
            if fails(candidate):
                best = candidate
            else:
                begin += size
        size //= 2
    return best
