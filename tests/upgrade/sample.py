"""What is recorded of a version: records for the topics of `sample.toml`, and what their readers ask."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from keylane import routing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CONFIG = Path(__file__).with_name("sample.toml")
BASE_MS = 1_356_998_400_000
"""The first record's timestamp: long ago, so that no clock takes a record for one of the future."""
STEP_MS = 60_000
STRAY_SHARE, TOMBSTONE_SHARE, BACK_SHARE = 0.3, 0.15, 0.4
BACK_MS = 7_200_000
GROWN = 3
"""How many partitions the topic has that had two when it began."""


@dataclass(frozen=True, slots=True)
class SampleTopic:
    """A topic of `sample.toml`: what its producers do.

    `turns_back`: timestamps of its records go back. `is_table`: its values are change events.
    """

    partitions: int
    partitioner: str = "murmur2"
    partition_by: str = "key"
    has_strays: bool = False
    keeps_first: bool = False
    value_limit: int = 1 << 20
    turns_back: bool = False
    is_table: bool = False

    def home(self, key: bytes, partitions: int) -> int:
        return routing.partition_for(
            routing.partition_key(key, self.partition_by), partitions, self.partitioner
        )


TOPICS = {
    "plain": SampleTopic(3),
    "kept": SampleTopic(2, partition_by="prefix:|"),
    "mixed": SampleTopic(3, has_strays=True),
    "strayed": SampleTopic(2, has_strays=True),
    "first": SampleTopic(2, "fnv1a", keeps_first=True),
    "large": SampleTopic(2, "crc32", value_limit=60),
    "grown": SampleTopic(2),
    "turned": SampleTopic(2, turns_back=True),
    "rows": SampleTopic(2, is_table=True),
    "packed": SampleTopic(2),
}
VIEWS = {"totals": "plain", "hours": "plain", "sessions": "plain", "current": "rows"}
"""The topics of the views."""
QUEUED, REFUSED = "queued", "refused"
"""Topics of Kafka alone, for the write-ahead log; the second one takes no records that long."""


class Row(NamedTuple):
    """A record of the sample. `topic`: its name without the prefix."""

    topic: str
    partition: int
    key: str
    value: str | None
    at_ms: int
    headers: list[tuple[str, str]]


def config(prefix: str) -> str:
    """The text of keylane.toml."""
    return CONFIG.read_text(encoding="utf-8").replace("PREFIX", prefix)


def keys_of(topic: str) -> list[str]:
    """All keys of a topic, also those without a record."""
    if topic == "kept":
        return [f"{part}|{number}" for part in "ad" for number in range(6)]
    # A dictionary needs many values.
    return [f"k{number}" for number in range(150 if topic == "packed" else 12)]


def rows(
    first: int,
    count: int,
    names: Sequence[str] = tuple(TOPICS),
    *,
    strays: bool = True,
    grown: int = TOPICS["grown"].partitions,
) -> list[Row]:
    """Records number `first` and after, of these topics: the same in every recording.

    `grown`: how many partitions that topic has.
    """
    drawn = random.Random(first)
    found = []
    for number in range(first, first + count):
        name = names[number % len(names)]
        topic = TOPICS[name]
        key = drawn.choice(keys_of(name))
        partitions = grown if name == "grown" else topic.partitions
        partition = topic.home(key.encode(), partitions)
        if topic.has_strays and strays and drawn.random() < STRAY_SHARE:
            partition = drawn.randrange(partitions)
        at_ms = BASE_MS + STEP_MS * number
        if topic.turns_back and drawn.random() < BACK_SHARE:
            at_ms -= BACK_MS
        fields = {"n": number, "who": key, "at": at_ms}
        if name == "large" and drawn.random() < TOMBSTONE_SHARE:
            fields["long"] = "x" * topic.value_limit
        if name == "packed":
            fields["note"] = f"order {number} of {key} was packed and is waiting for its carrier"
        content = {"before": None, "after": fields, "op": "u"} if topic.is_table else fields
        value = None if drawn.random() < TOMBSTONE_SHARE else json.dumps(content)
        headers = [("n", str(number)), ("é", "")] if name == "kept" else []
        found.append(Row(name, partition, key, value, at_ms, headers))
    return found


def fold(log: Iterable[Row], topic: str) -> dict[str, str | None]:
    """What readers see of a topic's keys after these records.

    Across partitions timestamps rise: the last counts.
    """
    state: dict[str, str | None] = {}
    for row in log:
        if row.topic == topic and not (
            TOPICS[topic].keeps_first and row.value is not None and state.get(row.key) is not None
        ):
            is_event = TOPICS[topic].is_table and row.value is not None
            state[row.key] = json.dumps(json.loads(row.value or "")["after"]) if is_event else row.value
    return state


class Ask(NamedTuple):
    """A request of a reader."""

    method: str
    path: str
    body: str = ""


def requests(prefix: str) -> list[Ask]:
    """Reads of every kind. Pages are short, so that their cursors are there."""
    found = []
    for name in TOPICS:
        topic, keys = f"/topics/{prefix}-{name}", keys_of(name)
        found += [
            Ask("POST", f"{topic}/keys:read", json.dumps({"keys": keys})),
            *(Ask("GET", f"{topic}/keys/{key.replace('|', '%7C')}") for key in keys[:4]),
        ]
    kept, key = f"/topics/{prefix}-kept", "a%7C1"
    middle_ms = BASE_MS + STEP_MS * 200
    for indexed in ("kept", "mixed", "grown"):
        found += [
            Ask("GET", f"/topics/{prefix}-{indexed}/keys?limit=3"),
            Ask("GET", f"/topics/{prefix}-{indexed}/count"),
        ]
    found += [
        Ask("GET", f"{kept}/keys/{key}?envelope=true"),
        Ask("GET", f"{kept}/keys/{key}?as_of={middle_ms}"),
        Ask("GET", f"{kept}/keys/{key}/history?limit=2"),
        Ask("GET", f"{kept}/keys?prefix=d"),
        Ask("GET", f"{kept}/keys?as_of={middle_ms}&limit=2"),
        Ask("GET", f"{kept}/find?who=a*&order=-n&limit=2"),
        Ask("GET", f"/topics/{prefix}-packed/keys/k1/history?limit=2"),
        Ask("GET", f"/topics/{prefix}-mixed/find?who=k1&order=at"),
        Ask("GET", f"/topics/{prefix}-mixed/find?at=..&limit=3"),
    ]
    for view in VIEWS:
        found += [
            Ask("GET", f"/views/{prefix}-{view}"),
            Ask("GET", f"/views/{prefix}-{view}/keys?limit=3"),
            Ask("GET", f"/views/{prefix}-{view}/keys/k1"),
        ]
    return found
