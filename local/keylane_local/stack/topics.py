"""The topics of `keylane.toml`, created if the broker does not have them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, cimpl
from confluent_kafka.admin import AdminClient

from keylane.errors import BadConfig
from keylane.model.records import WHOLE_KEY
from keylane_local.errors import BadInput, PartFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from keylane_spark.config.topics import Config, TopicConfig

_OTHERS = "KEYLANE_PARTITIONERS"
_SERVED = "KEYLANE_TOPICS"
USUAL = "murmur2"
"""The partitioner of a topic for which nothing else is said."""
_TIMEOUT_S = 20.0


def load_config(config: Path) -> Config:
    """Return what is in `config`; raise BadInput, with line and field, if it is invalid."""
    from keylane_spark.config.config_file import load  # noqa: PLC0415 - its import takes longer than `status`

    try:
        return load(config)
    except BadConfig as error:
        raise BadInput(str(error)) from error


def load_topics(config: Path) -> dict[str, TopicConfig]:
    """Return the topics in `config` by name; raise BadInput as `load_config` does."""
    return load_config(config).topics


def render_placement(topics: Mapping[str, TopicConfig]) -> dict[str, str]:
    """Return the variables by which writes go to the partitions where the job expects the keys."""
    others = {name: topic.partitioner for name, topic in topics.items() if topic.partitioner != USUAL}
    found = {"KEYLANE_PARTITION_BY": render_partition_by(topics)}
    # What the environment says of partitioners wins: it may have more topics, and more partitioners.
    return found | ({_OTHERS: json.dumps(others)} if others and _OTHERS not in os.environ else {})


def render_served(topics: Iterable[str]) -> dict[str, str]:
    """Return the variable by which the server of somebody's Kafka writes to these topics alone."""
    return {} if _SERVED in os.environ else {_SERVED: json.dumps({"write": sorted(topics)})}


def render_partition_by(topics: Mapping[str, TopicConfig]) -> str:
    """Return KEYLANE_PARTITION_BY for the produce function: JSON of the topics with that option."""
    return json.dumps(
        {name: topic.partition_by for name, topic in topics.items() if topic.partition_by != WHOLE_KEY}
    )


def create_missing(bootstrap: str, topics: Mapping[str, TopicConfig]) -> list[str]:
    """Create the topics that do not exist, and return their names. Existing ones stay as they are."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        present = admin.list_topics(timeout=_TIMEOUT_S).topics
        missing = [
            cimpl.NewTopic(name, topic.created_as.partition_count, config=dict(topic.created_as.settings))
            for name, topic in topics.items()
            if name not in present
        ]
        for name, made in admin.create_topics(missing).items() if missing else ():
            try:
                made.result(_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise PartFailed(
                        "kafka", f"topic {name} was not created: {error.args[0].str()}"
                    ) from error
    except KafkaException as error:
        raise PartFailed("kafka", f"its topics could not be listed: {error.args[0].str()}") from error
    return [topic.topic for topic in missing]
