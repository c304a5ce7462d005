"""What the soak does: its topics and views, its rates, and how long things live, by the minutes it has."""

from __future__ import annotations

from dataclasses import dataclass

STEADY, GROWING, EXPIRING = "steady", "growing", "expiring"
TOTALS, WINDOWS = "totals", "windows"
PARTITIONS = 6
STEADY_KEYS, HOT_KEYS, GROUPS = 2_000, 4, 8
VALUE_BYTES = 160
CONFIG = """\
[job]
# Bursts are larger than that: Spark's Python workers have work, too.
small_batch_records = 500

[topics.steady]
partitions = {partitions}
stripes = 2
index = true
history_count = 3

[topics.growing]
partitions = {partitions}

[topics.expiring]
partitions = {partitions}
index = true
ttl = "{ttl_ms}ms"

[views.totals]
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
        """The length of a window."""
        return round(self.ttl_s * 1000 / 5)

    def config(self) -> str:
        """The job's configuration."""
        ttl_ms = round(self.ttl_s * 1000)
        return CONFIG.format(
            partitions=PARTITIONS, ttl_ms=ttl_ms, window_ms=self.window_ms, lateness_ms=ttl_ms // 2
        )
