"""Sizes and list prices of AWS, those of prices.toml, and what else is counted at rest."""

import tomllib
from pathlib import Path
from typing import Any

HOURS_A_MONTH = 730
SECONDS_A_MONTH = HOURS_A_MONTH * 3600

_TABLES: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
CACHE_NODES: dict[str, tuple[float, float]] = _TABLES["CACHE_NODES"]
BROKERS: dict[str, float] = _TABLES["BROKERS"]
BROKER_DISKS: dict[str, float] = _TABLES["BROKER_DISKS"]
CORES: dict[str, tuple[float, float]] = _TABLES["CORES"]
BY_THE_HOUR: dict[str, float] = _TABLES["BY_THE_HOUR"]
BY_THE_MONTH: dict[str, float] = _TABLES["BY_THE_MONTH"]
BY_USE: dict[str, float] = _TABLES["BY_USE"]
FREE: dict[str, str] = _TABLES["FREE"]


def tiered(kind: str, count: float) -> float:
    """Return what so many of a kind cost in a month."""
    dollars, left = 0.0, count
    for size, price in _TABLES["TIERS"][kind]:
        dollars += min(left, size) * price
        left -= min(left, size)
    return dollars


# Assumed: what is there of a kind although no template says how many.
PARTITIONS_AT_REST = 9
"""Partitions of Kafka: one topic."""
BROKER_METRICS = 45
"""Metrics that MSK adds for each broker at the level PER_BROKER. Those of DEFAULT are free."""
BROKER_LOG_GB = 0.5
"""Logs of a broker that has nothing to do."""
CLUSTER_METRICS = 25
"""Metrics of Container Insights for a cluster of ECS with one service and its task."""
