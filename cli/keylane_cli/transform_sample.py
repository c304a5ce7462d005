"""Runs a topic's transform over its first records, with the code with which the job runs it."""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from keylane.errors import UnknownTopic
from keylane.model.records import Position
from keylane.ports import Deadline
from keylane_cli.new_project import first_records
from keylane_local.env_file import KAFKA, REDIS
from keylane_local.errors import BadInput
from keylane_local.stack.outside import TIMEOUT_MS, reach
from keylane_spark.config.topics import load
from keylane_spark.preview import TransformedValue, TransformPreview

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from keylane.model.kafka import LogRecord

_WHERE = {"kafka": KAFKA, "redis": REDIS}


@dataclass(frozen=True, slots=True)
class TransformedRecord:
    """A record before and after. `result`: its value is `set`, the `same`, or `deleted`; or it `failed`.

    Bytes that are not UTF-8 are shown with replacements. `why`: of a failure.
    """

    position: str
    key: str
    result: Literal["set", "same", "deleted", "failed"]
    before: str
    after: str | None = None
    why: str = ""


def transform_sample(
    config: Path, topic: str, environment: Mapping[str, str], count: int
) -> Iterator[TransformedRecord]:
    """Yield what the transform makes of the topic's first `count` records with keys and values.

    Raises BadInput, PartUnreachable, KeylaneError.
    """
    sys.path.append(str(config.resolve().parent))
    table = load(config).topics.get(topic)
    if table is None:
        raise BadInput(f"{config} has no topic {topic!r}")
    definition = table.definition
    if definition is None:
        raise BadInput(f"topic {topic!r} has no where, select or transform in {config}")
    if not environment.get(KAFKA):
        raise BadInput("name Kafka's brokers with --kafka")
    preview = TransformPreview(topic, definition)
    yield from map(_shown, preview.values(_sample(topic, environment, count)))


def _sample(topic: str, environment: Mapping[str, str], count: int) -> dict[int, list[LogRecord]]:
    """Return records with keys and values, as many of each partition as there are."""
    with reach(environment, _WHERE) as outside:
        deadline = Deadline.after_ms(TIMEOUT_MS, outside.clock)
        if topic not in outside.metadata.topics(deadline):
            raise UnknownTopic(topic, "Kafka has no topic of this name")
        described = outside.metadata.topic(topic, Deadline.after_ms(TIMEOUT_MS, outside.clock))
        found = first_records(outside, described, len(described.partitions))
        taken = itertools.islice((each for each in found if each[1].key and each[1].value is not None), count)
        by_partition = itertools.groupby(taken, key=lambda each: each[0])
        return {number: [record for _, record in records] for number, records in by_partition}


def _shown(found: TransformedValue) -> TransformedRecord:
    shown = str(Position(found.partition, found.offset)), _text(found.key)
    if found.why is not None:
        return TransformedRecord(*shown, "failed", _text(found.before), None, found.why)
    if found.after is None:
        return TransformedRecord(*shown, "deleted", _text(found.before))
    result: Literal["set", "same"] = "same" if found.after == found.before else "set"
    return TransformedRecord(*shown, result, _text(found.before), _text(found.after))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
