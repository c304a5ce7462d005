"""What is to be told of a topic's records: another partitioner placed them, values are left in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.model.records import WHOLE_KEY
from keylane.routing import PARTITIONERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.model.records import Layout
    from keylane.model.topic_partition import TopicPartition
    from keylane_spark.telemetry.tally import Tally

_ENOUGH = 50
EXPLANATIONS = (*PARTITIONERS, "whole_key")
"""What may have placed a stray: `batch.Tally` counts each."""


class Audit:
    """Sums of the tallies by topic; each thing is told once."""

    def __init__(self, layouts: Mapping[str, Layout]) -> None:
        self._layouts = layouts
        self._keyed = dict.fromkeys(layouts, 0)
        self._strays = dict.fromkeys(layouts, 0)
        self._explained = {topic: dict.fromkeys(EXPLANATIONS, 0) for topic in layouts}
        self._told: set[str] = set()
        self._told_left: set[str] = set()

    def add(self, tallies: Mapping[TopicPartition, Tally]) -> list[str]:
        """Take note of a batch; what there is to say of it."""
        sentences = []
        for (topic, _), tally in tallies.items():
            self._keyed[topic] += tally.records - tally.null_keys
            self._strays[topic] += tally.strays
            for name in EXPLANATIONS:
                self._explained[topic][name] += getattr(tally, name)
            if tally.left_in_kafka and topic not in self._told_left:
                self._told_left.add(topic)
                limit = self._layouts[topic].options.max_value_bytes
                sentences.append(
                    f"topic {topic!r} has values over {limit:,} bytes: they are left in Kafka, "
                    f"reads tell where"
                )
        return sentences + [sentence for topic in self._layouts if (sentence := self._partitioner(topic))]

    def _partitioner(self, topic: str) -> str | None:
        strays, keyed = self._strays[topic], self._keyed[topic]
        # Keys spread by another partitioner still meet their own partition by chance, one in N.
        if topic in self._told or strays < _ENOUGH or strays * 2 < keyed:
            return None
        layout = self._layouts[topic]
        for name, count in self._explained[topic].items():
            if count != strays:
                continue
            self._told.add(topic)
            found = f"topic {topic!r}: {strays:,} of {keyed:,} records lie where "
            if name == "whole_key":
                return (
                    f"{found}{layout.partitioner} of the whole key puts them: its producers don't do as "
                    f"partition_by = {layout.partition_by!r} says, which makes them dearer to write"
                )
            of = "" if layout.partition_by == WHOLE_KEY else f" by {layout.partition_by!r}"
            return (
                f"{found}{name}{of} puts them, not {layout.partitioner}: named as partitioner in "
                f"keylane.toml it makes them cheaper to write"
            )
        return None
