"""Strays, records that lie in another partition than their key's: their totals, and what explains them."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from keylane.errors import Unavailable
from keylane.model.kafka import TopicPartition
from keylane.model.records import WHOLE_KEY, Layout
from keylane_spark.generations.ownership import Ownership
from keylane_spark.telemetry.tally import EXPLANATIONS, Tally

_MIN_STRAYS = 50


class StrayTotals:
    """Adds each batch's strays to the totals in Redis; what can't be added now is added later."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._pending: dict[Layout, Counter[str]] = {}

    def add(
        self, layouts: Mapping[str, Layout], tallies: Mapping[TopicPartition, Tally], *, later: bool = False
    ) -> None:
        """Add a batch's strays, at least once: a batch that is repeated counts again.

        `later`: Redis is known not to take them now.
        """
        for (topic, _), tally in tallies.items():
            if tally.strays:
                self._pending.setdefault(layouts[topic], Counter()).update(tally.stray_counts)
        if later:
            return
        with suppress(Unavailable):
            for layout in list(self._pending):
                self._ownership.add_strays(layout, +self._pending[layout])
                del self._pending[layout]


class PartitionerAudit:
    """Sums up the tallies of each topic, and says what they show: each finding once."""

    def __init__(self, layouts: Mapping[str, Layout]) -> None:
        self._layouts = layouts
        self._keyed = Counter[str]()
        self._strays = {topic: Counter[str]() for topic in layouts}
        self._reported: set[str] = set()
        self._reported_left: set[str] = set()

    def add(self, tallies: Mapping[TopicPartition, Tally]) -> list[str]:
        """Add the tallies of a batch; returns the sentences to print."""
        sentences = []
        for (topic, _), tally in tallies.items():
            self._keyed[topic] += tally.records - tally.null_keys
            self._strays[topic].update(tally.stray_counts)
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
        counts, keyed = self._strays[topic], self._keyed[topic]
        strays = counts["strays"]
        # Records placed by another partitioner still hit the right partition by chance, one in N.
        if topic in self._reported or strays < _MIN_STRAYS or strays * 2 < keyed:
            return None
        layout = self._layouts[topic]
        for name in EXPLANATIONS:
            if counts[name] != strays:
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
