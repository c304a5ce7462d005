"""Reads the progress of a topic's lanes from outside the job."""

from typing import Self

from keylane.adapters.kafka.options import Connection
from keylane.config.functions import redis_settings
from keylane.errors import UnknownTopic
from keylane_local.errors import PartFailed
from keylane_local.stack.stack import Stack
from keylane_spark.preview import JobKafka, LaneProgress


class Lanes:
    """The lanes of one topic of a running stack."""

    def __init__(self, stack: Stack, topic: str) -> None:
        """Connect; raise PartFailed if the topic has no layout."""
        try:
            self._progress = LaneProgress(redis_settings(stack.environment()), topic)
        except UnknownTopic as error:
            why = f"topic {topic!r} has no layout: is it in keylane.toml?"
            raise PartFailed("job", why, stack.job.log) from error
        self._broker = JobKafka(Connection(stack.kafka_bootstrap))

    def end_offsets(self) -> dict[int, int]:
        """Return the end offset of each partition in Kafka."""
        layout = self._progress.layout
        found = self._broker.end_offsets({layout.topic: layout.partition_count})
        return {partition: end for (_, partition), end in found.items()}

    def next_offsets(self) -> dict[int, int]:
        """Return the next offset of each partition in the state: that of its slowest stripe."""
        return self._progress.next_offsets()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.close()
