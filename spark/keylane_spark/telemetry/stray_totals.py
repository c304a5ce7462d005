"""Totals of the records that lie in another partition than their key's, summed over runs."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from keylane.errors import Unavailable
from keylane_spark.telemetry.partitioner_audit import EXPLANATIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.model.records import Layout
    from keylane.model.topic_partition import TopicPartition
    from keylane_spark.generations.ownership import Ownership
    from keylane_spark.telemetry.tally import Tally


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
                counts = self._pending.setdefault(layouts[topic], Counter())
                counts["strays"] += tally.strays
                for name in EXPLANATIONS:
                    counts[name] += getattr(tally, name)
        if later:
            return
        with suppress(Unavailable):
            for layout in list(self._pending):
                self._ownership.add_strays(layout, +self._pending[layout])
                del self._pending[layout]
