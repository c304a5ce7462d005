"""What the soak does: its topics and views, its rates, and how long things live, by the minutes it has."""

from __future__ import annotations

from dataclasses import dataclass

from tests.torture.configurations import settings_of
from tests.torture.schedule import Shape

from keylane.model.records import Options

STEADY, GROWING, EXPIRING = "steady", "growing", "expiring"
TOTALS, WINDOWS = "totals", "windows"
PARTITIONS = 6
STEADY_KEYS, HOT_KEYS, GROUPS = 2_000, 4, 8
VALUE_BYTES = 160
CONFIG = """\
[job]
# Bursts are larger than that: Spark's Python workers have work, too.
small_batch_records = 500

{topics}[views.totals]
topic = "steady"
[views.totals.columns]
n = "count()"

[views.windows]
topic = "steady"
key = "group"
time = "at"
window = "{window_ms}ms"
lateness = "{lateness_ms}ms"
ttl = "{ttl_ms}ms"
[views.windows.columns]
n = "count()"
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """Rates are per second. A burst is one request with many records, besides `writes_per_s`."""

    minutes: float
    writes_per_s: float = 100
    reads_per_s: float = 100
    burst_records: int = 1_000
    burst_every_s: float = 30
    seed: int = 1

    @property
    def ttl_s(self) -> float:
        """How long a record of `expiring` lives, and a window after its last change: 20 s to 5 minutes."""
        return min(300.0, max(20.0, self.minutes * 60 / 12))

    @property
    def window_ms(self) -> int:
        return round(self.ttl_s * 1000 / 5)

    @property
    def shapes(self) -> dict[str, Shape]:
        """The topics by name."""
        expiring = Options(index=1, ttl_ms=round(self.ttl_s * 1000))
        shapes = (
            Shape(STEADY, PARTITIONS, stripes=2, options=Options(index=1, history_count=3)),
            Shape(GROWING, PARTITIONS),
            Shape(EXPIRING, PARTITIONS, options=expiring),
        )
        return {shape.name: shape for shape in shapes}

    def config(self) -> str:
        """The job's configuration."""
        topics = (
            f"[topics.{name}]\npartitions = {PARTITIONS}\n{settings_of(shape)}\n"
            for name, shape in self.shapes.items()
        )
        ttl_ms = round(self.ttl_s * 1000)
        return CONFIG.format(
            topics="".join(topics), ttl_ms=ttl_ms, window_ms=self.window_ms, lateness_ms=ttl_ms // 2
        )
