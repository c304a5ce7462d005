"""The model's job: processes that open lanes, read, beat, switch and sweep by the job's own code.

Only Spark is left out: a batch is what the log has of its ranges.
"""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

from tests.model.connections import Crash, JobCluster
from tests.model.log import TOPIC

from keylane.errors import Fenced, KeylaneError, LaneBehind, TopicChanged, Unavailable
from keylane_spark.config.topics import Config
from keylane_spark.generations import ownership, sweeper
from keylane_spark.lanes import dictionaries, index_sizes, lane
from keylane_spark.lanes.function_library import FunctionLibrary, WriteOptions
from keylane_spark.log.leader_session import LeaderAnswers
from keylane_spark.rows import compression
from keylane_spark.serving import open_topics, switch
from keylane_spark.stream import batch_writer, heartbeat, partition_chunks, topic_query
from keylane_spark.telemetry.metrics import JobMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.model.connections import SharedCluster
    from tests.model.log import Kafka

    from keylane.adapters.redis.cluster import RedisSettings
    from keylane.ports import Clock
    from keylane_spark.stream.topic_query import TopicQuery

Ends = dict[tuple[str, int], int]
MODULES = (open_topics, ownership, topic_query, heartbeat, switch, sweeper, index_sizes, dictionaries)


class Broken(AssertionError):
    """A promise that a state of the world breaks."""


@dataclass
class Job:
    """One process. `serving`: what runs from one opening of the lanes to the next; None: nothing."""

    ownership: ownership.Ownership
    serving: switch.Serving | None = None

    @property
    def query(self) -> TopicQuery | None:
        return self.serving._serving if self.serving else None

    @property
    def building(self) -> TopicQuery | None:
        """The query that builds the next generation."""
        return self.serving._building if self.serving else None

    @property
    def epoch(self) -> int:
        """The epoch that it holds, -1 before the first."""
        return self.ownership._held.get(TOPIC, -1)


class Jobs:
    """What the jobs of a world share, and what they do. Use it as a context manager.

    What a step returns: whether the process goes on. A process that goes on may have to open its lanes again.
    """

    def __init__(self, kafka: Kafka, redis: RedisSettings, shared: SharedCluster, clock: Clock) -> None:
        self._shared = shared
        self._stack = ExitStack()
        self._ends: Ends = {}
        options = WriteOptions(retry_budget_s=20)
        config = {"job": {"reader": "spark", "sweep_keys_per_s": 10**12}, "topics": {TOPIC: {}}}
        self.context: Any = SimpleNamespace(
            # Rows come as from Spark: the model has no broker to read from.
            config=Config.model_validate(config),
            spark=SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1)),
            broker=kafka,
            redis=redis,
            checkpoint=Path("/nowhere"),
            clock=clock,
            epoch_ends=lambda _: {},
            watch=lambda counts: SimpleNamespace(
                ends=lambda **_: LeaderAnswers(kafka.ends(counts)),
                topics=lambda: kafka.describe([TOPIC]),
                close=lambda: None,
            ),
            spans=None,
            claim_clock=SimpleNamespace(
                now_ms=clock.now_ms, compare=lambda *_: None, largest_skew=lambda: None
            ),
            say=lambda _: None,
            write=lambda _: None,
            write_options=options,
            registry=None,
            library=lambda cluster: FunctionLibrary(cluster, clock, options),
        )
        # Nobody knows of strays but by the lanes themselves.
        self.totals: Any = SimpleNamespace(add=lambda *_, **__: None)
        self.metrics = JobMetrics(clock)
        self.shared_parts: list[Any] = [
            *(self.context, self.context.config, self.totals, self.metrics),
            *(shared, kafka, clock, redis, options),
        ]

    def __enter__(self) -> Self:
        patch, enter = mock.patch.object, self._stack.enter_context
        for module in MODULES:
            enter(patch(module, "Cluster", side_effect=lambda *_: JobCluster(self._shared)))
        # Chunks of one record: a batch is several chunks, sent as those of a large one.
        enter(patch(partition_chunks, "MAX_RECORDS", 1))
        enter(patch(partition_chunks, "COMPARED_RECORDS", 1))
        enter(patch(batch_writer, "MAX_RECORDS", 1))
        enter(patch(lane, "PAYS_FROM_RECORDS", 1))
        # Every value of a topic with compression is a frame, and no dictionary is ever made.
        enter(patch(compression, "_SHORTEST", 1))
        enter(patch(compression, "_LEAST_GAIN", -1000))
        enter(patch(dictionaries.DictionaryStore, "read", return_value={}))
        enter(patch(open_topics, "check_eviction_policy"))
        enter(patch(topic_query, "batch_ends", side_effect=lambda *_: self._ends))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> Job:
        return Job(ownership.Ownership(self.context.redis, self.context.clock))

    def open(self, job: Job) -> bool:
        """It opens its lanes."""
        try:
            openings = open_topics.open_topics(self.context, job.ownership)
        except Crash:
            return False
        except KeylaneError as error:
            raise Broken(f"the job can't open its lanes: {error!r}") from error
        job.serving = switch.Serving(self.context, job.ownership, openings, self.totals, self.metrics)
        return True

    def read(self, job: Job, query: TopicQuery, ends: Ends) -> bool:
        """A query writes a batch that ends at these offsets."""
        return self._guarded(job, lambda: self.write(query, ends))

    def write(self, query: TopicQuery, ends: Ends) -> None:
        """As `read`. Raises what the query meets."""
        rows = self.context.broker.rows(ends, query.positions)
        if rows is None:
            raise TopicChanged(
                "Kafka no longer has what is to be read"
            )  # as when Spark finds that it lost data
        self._ends = ends
        query.write(rows, 0)

    def beat(self, job: Job, query: TopicQuery) -> bool:
        """A query's heartbeat."""
        return self._guarded(job, lambda: self.beat_once(query))

    def beat_once(self, query: TopicQuery) -> None:
        """As `beat`. Raises what ends the query."""
        with contextlib.suppress(Unavailable):  # the next beat tries again
            query._heartbeat._beat()

    def switch(self, job: Job, read_on: Callable[[TopicQuery], bool]) -> bool:
        """Readers are switched to what is built; `read_on`: that query goes on while it is behind."""
        serving, building = job.serving, job.building
        if serving is None or building is None:
            return True
        stop: Any = SimpleNamespace(wait=lambda _: read_on(building))
        if not self._guarded(job, lambda: serving._switch(building, stop)):
            return False
        job.serving = None
        return True

    def sweep(self, job: Job) -> bool:
        """What the topic's record lists is removed."""
        own = sweeper.Sweeper(
            *(self.context.redis, job.ownership, self.context.clock, self.context.config),
            notify=lambda _: None,
        )
        return self._guarded(job, lambda: own._sweep(TOPIC))

    def _guarded(self, job: Job, action: Callable[[], object]) -> bool:
        try:
            action()
        except Crash:
            return False
        except (TopicChanged, Unavailable, LaneBehind):
            job.serving = None
        except Fenced:
            return False
        except KeylaneError as error:
            raise Broken(f"the job ends: {error!r}") from error
        return True
