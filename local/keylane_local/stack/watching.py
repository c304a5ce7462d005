"""Reads the progress of a topic's lanes from outside the job."""

from keylane.adapters.kafka.options import Connection
from keylane.config.functions import redis_settings
from keylane.errors import UnknownTopic
from keylane_local.errors import PartFailed
from keylane_local.stack.stack import Stack
from keylane_spark.preview import TopicProgress


class Lanes(TopicProgress):
    """The lanes of one topic of a running stack."""

    def __init__(self, stack: Stack, topic: str) -> None:
        """Connect; raise PartFailed if the topic has no layout."""
        try:
            super().__init__(redis_settings(stack.environment()), Connection(stack.kafka_bootstrap), topic)
        except UnknownTopic as error:
            why = f"topic {topic!r} has no layout: is it in keylane.toml?"
            raise PartFailed("job", why, stack.job.log) from error
