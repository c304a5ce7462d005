"""What an edited `keylane.toml` changes: what is built again, what only changes, whether the job restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from keylane.errors import BadConfig
from keylane_spark.config.config_file import load
from keylane_spark.config.topics import Config, TopicConfig
from keylane_spark.preview import difference, is_alike, wanted_layout

T = TypeVar("T")

_AGAIN = "is built again beside its present state, which serves until then"


class ConfigChanges(NamedTuple):
    """A sentence for each topic and view that differs, and one for the other tables.

    `why_start`: why the job's process must start again to serve them; empty: it need not.
    """

    sentences: Sequence[str]
    why_start: str


def find_changes(before: Path, after: Path) -> ConfigChanges:
    """Compare two files. If the first is not there, or no version of today can read it, nothing is known."""
    try:
        old = load(before)
    except BadConfig:
        return ConfigChanges((), "the file of its last start is not known")
    new = load(after)
    return ConfigChanges(list(_compare(old, new)), new.why_not_after(old))


def _compare(old: Config, new: Config) -> Iterator[str]:
    yield from _compare_tables("topic", old.topics, new.topics, _topic_change)
    yield from _compare_tables("view", old.views, new.views, lambda _, __: _AGAIN)
    if old.job != new.job or old.spark != new.spark:
        yield "settings of the job changed"


def _compare_tables(
    kind: str, old: Mapping[str, T], new: Mapping[str, T], change: Callable[[T, T], str]
) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            advice = f"its state stays as it is until `[job] forget_{kind}s` names it"
            yield f"{kind} {name!r} is no longer written: {advice}"
        elif name not in old:
            yield f"{kind} {name!r} is new: it is built"
        elif old[name] != new[name]:
            yield f"{kind} {name!r} {change(old[name], new[name])}"


def _topic_change(was: TopicConfig, now: TopicConfig) -> str:
    # Kafka says how many partitions there are; the number does not matter for the comparison.
    before, after = wanted_layout("", 1, was), wanted_layout("", 1, now)
    if not is_alike(before, after):
        return f"{_AGAIN}: {difference(before, after)}"
    return "changes in place" if before != after else "changes only in how Kafka would create it"
