"""Whether a topic's records lie where its declared partitioner puts them, and if not, which one did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.routing import PARTITIONERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.model import Layout
    from keylane_spark.batch import Tally
    from keylane_spark.freshness import Place

_ENOUGH = 50


class Audit:
    """Sums of the tallies by topic, and a sentence, once, about a topic with another partitioner."""

    def __init__(self, layouts: Mapping[str, Layout]) -> None:
        self._layouts = layouts
        self._keyed = dict.fromkeys(layouts, 0)
        self._strays = dict.fromkeys(layouts, 0)
        self._explained = {topic: dict.fromkeys(PARTITIONERS, 0) for topic in layouts}
        self._told: set[str] = set()

    def add(self, tallies: Mapping[Place, Tally]) -> list[str]:
        """Take note of a batch; what there is to say of it."""
        for (topic, _), tally in tallies.items():
            self._keyed[topic] += tally.records - tally.null_keys
            self._strays[topic] += tally.strays
            for name in PARTITIONERS:
                self._explained[topic][name] += getattr(tally, name)
        return [sentence for topic in self._layouts if (sentence := self._sentence(topic))]

    def _sentence(self, topic: str) -> str | None:
        strays, keyed = self._strays[topic], self._keyed[topic]
        # Keys spread by another partitioner still meet their own partition by chance, one in N.
        if topic in self._told or strays < _ENOUGH or strays * 2 < keyed:
            return None
        declared = self._layouts[topic].partitioner
        for name, count in self._explained[topic].items():
            if count == strays:
                self._told.add(topic)
                return (
                    f"topic {topic!r}: {strays:,} of {keyed:,} records lie where {name} puts them, not "
                    f"{declared}: named as partitioner in keylane.toml it makes them cheaper to write"
                )
        return None
