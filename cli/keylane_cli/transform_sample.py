"""Runs a topic's transform over its first records, with the code with which the job runs it."""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING

from keylane.errors import UnknownTopic
from keylane_cli.survey.cluster import reach
from keylane_local.env_file import KAFKA
from keylane_local.errors import BadInput
from keylane_spark.config.config_file import load
from keylane_spark.preview import TransformedRecord, TransformPreview

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from keylane.model.kafka import LogRecord


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
    yield from preview.of(_sample(topic, environment, count))


def _sample(topic: str, environment: Mapping[str, str], count: int) -> dict[int, list[LogRecord]]:
    """Return records with keys and values, as many of each partition as there are."""
    with reach(environment) as survey:
        if topic not in survey.topics:
            raise UnknownTopic(topic, "Kafka has no topic of this name")
        described = survey.find_topic(topic)
        found = survey.first_records(described, len(described.partitions))
        taken = itertools.islice((each for each in found if None not in (each[1].key, each[1].value)), count)
        by_partition = itertools.groupby(taken, key=lambda each: each[0])
        return {number: [record for _, record in records] for number, records in by_partition}
