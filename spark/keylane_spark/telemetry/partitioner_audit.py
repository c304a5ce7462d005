"""Sentences about a topic's records: another partitioner placed them, or values are left in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.model.records import WHOLE_KEY
from keylane.routing import PARTITIONERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.model.records import Layout
    from keylane.model.topic_partition import TopicPartition
    from keylane_spark.telemetry.tally import Tally

_MIN_STRAYS = 50
EXPLANATIONS = (*PARTITIONERS, "whole_key")
"""What may have placed a stray: fields of `Tally`."""


class PartitionerAudit:
    """Sums up the tallies of each topic; each finding is reported once."""

    def __init__(self, layouts: Mapping[str, Layout]) -> None:
        self._layouts = layouts
        self._keyed = dict.fromkeys(layouts, 0)
        self._strays = dict.fromkeys(layouts, 0)
        self._explained = {topic: dict.fromkeys(EXPLANATIONS, 0) for topic in layouts}
        self._reported: set[str] = set()
        self._reported_left: set[str] = set()

    def add(self, tallies: Mapping[TopicPartition, Tally]) -> list[str]:
        """Add the tallies of a batch; returns the sentences to print."""
        sentences = []
        for (topic, _), tally in tallies.items():
            self._keyed[topic] += tally.records - tally.null_keys
            self._strays[topic] += tally.strays
            for name in EXPLANATIONS:
                self._explained[topic][name] += getattr(tally, name)
            if tally.left_in_kafka and topic not in self._reported_left:
                self._reported_left.add(topic)
                limit = self._layouts[topic].options.max_value_bytes
                sentences.append(
                    f"topic {topic!r} has values over {limit:,} bytes: they are left in Kafka, "
                    f"and reads return their positions"
                )
        return sentences + [
            sentence for topic in self._layouts if (sentence := self._find_partitioner(topic))
        ]

    def _find_partitioner(self, topic: str) -> str | None:
        strays, keyed = self._strays[topic], self._keyed[topic]
        # Records placed by another partitioner still hit the right partition by chance, one in N.
        if topic in self._reported or strays < _MIN_STRAYS or strays * 2 < keyed:
            return None
        layout = self._layouts[topic]
        for name, count in self._explained[topic].items():
            if count != strays:
                continue
            self._reported.add(topic)
            found = f"topic {topic!r}: {strays:,} of {keyed:,} records lie where "
            if name == "whole_key":
                return (
                    f"{found}{layout.partitioner} of the whole key puts them: its producers don't follow "
                    f"partition_by = {layout.partition_by!r}, which makes writing them slower"
                )
            of = "" if layout.partition_by == WHOLE_KEY else f" by {layout.partition_by!r}"
            return (
                f"{found}{name}{of} puts them, not {layout.partitioner}: set that partitioner in "
                f"keylane.toml, and writing them gets faster"
            )
        return None
