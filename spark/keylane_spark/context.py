"""What the modules of the job share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from keylane.adapters.registry.login import RegistrySettings
from keylane.model.kafka import TopicPartition
from keylane.ports import Clock
from keylane_spark.config.topics import Config
from keylane_spark.lanes.claim_clock import ClaimClock
from keylane_spark.lanes.cluster import Cluster, RedisSettings
from keylane_spark.lanes.function_library import FunctionLibrary, WriteOptions
from keylane_spark.log.kafka_admin import JobKafka
from keylane_spark.log.leader_epochs import EpochEnd, epoch_ends
from keylane_spark.log.log_watch import LogWatch
from keylane_spark.telemetry.metrics import JobMetrics

if TYPE_CHECKING:
    from keylane_spark.telemetry.batch_spans import BatchSpans


@dataclass(frozen=True, slots=True)
class JobContext:
    """The config and the outside world. `say` prints log lines. `spans`: None if none are exported.

    `registry`: None if no topic has change events that need one. `served`: the topics that this process has
    served already, before it read its file again.
    """

    config: Config
    spark: SparkSession
    broker: JobKafka
    redis: RedisSettings
    checkpoint: Path
    clock: Clock
    claim_clock: ClaimClock
    say: Callable[[str], None]
    metrics: JobMetrics
    spans: BatchSpans | None = None
    registry: RegistrySettings | None = None
    served: frozenset[str] = frozenset()

    @property
    def write_options(self) -> WriteOptions:
        """How the config wants writes to be repeated and replicated."""
        job = self.config.job
        return WriteOptions(
            retry_budget_s=job.redis_patience_s,
            wait_replicas=job.wait_replicas,
            wait_ms=job.wait_timeout_ms,
        )

    def watch(self, counts: Mapping[str, int]) -> LogWatch:
        """A watch of the ends of these topics' logs, and of all topics of the config."""
        return LogWatch(lambda: self.broker.connection, counts, self.config.topics)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd | None]:
        """Where these leader epochs end in their logs: see `leader_epochs.epoch_ends`."""
        return epoch_ends(self.broker.connection, epochs, self.clock)

    def library(self, cluster: Cluster) -> FunctionLibrary:
        """The function library over the calling thread's own cluster; pauses are printed."""
        return FunctionLibrary(cluster, self.clock, self.write_options, self.say)
