"""What the parts of the job share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from keylane.adapters.redis.cluster import RedisSettings
    from keylane.ports import Clock
    from keylane_spark.adapters.kafka_admin import Broker
    from keylane_spark.config.topics import Config


@dataclass(frozen=True, slots=True)
class Parts:
    """What the job works with. `say` gets lines for people, `write` those for programs."""

    config: Config
    spark: SparkSession
    broker: Broker
    redis: RedisSettings
    checkpoint: Path
    clock: Clock
    say: Callable[[str], None]
    write: Callable[[str], None] = lambda _: None
