"""A job that creates the topics that Kafka does not have."""

from __future__ import annotations

import math

import pytest
from tests.support.builders import a_topic
from tests.support.jobs import JARS, RunningJob

from keylane.adapters.kafka.options import Connection
from keylane.errors import BadConfig
from keylane.model.kafka import NewTopic
from keylane_spark.adapters.kafka_admin import JobKafka

pytestmark = pytest.mark.integration


def test_topics_that_kafka_does_not_have_are_created_as_the_file_says(kafka, redis_cluster, tmp_path):
    plain, compacted, refused = a_topic(), a_topic(), a_topic()
    text = (
        f"[job]\ncreate_topics = true\n[topics.{plain}]\n[topics.{compacted}]\npartitions = 3\n"
        f'kafka = {{ "cleanup.policy" = "compact", "delete.retention.ms" = "7200000" }}\n'
    )
    addresses = {"KEYLANE_KAFKA_BOOTSTRAP": kafka, "KEYLANE_REDIS_NODES": redis_cluster}
    environment = {**addresses, "KEYLANE_JARS": str(JARS)}
    (tmp_path / "keylane.toml").write_text(text)
    running = RunningJob(tmp_path, environment)
    running.wait_for(f"topic {plain!r} is created with 9 partitions")
    running.wait_for(f"topic {compacted!r} is created with 3 partitions")
    running.wait_for("keylane: ready")
    running.process.terminate()
    assert running.exit_code() == 0
    broker = JobKafka(Connection(kafka))
    shapes = broker.describe([plain, compacted])
    assert (shapes[plain].partition_count, shapes[compacted].partition_count) == (9, 3)
    assert (broker.is_compacted(plain), broker.is_compacted(compacted)) == (False, True)
    lasts_ms = [broker.tombstones_last_ms(topic) for topic in (plain, compacted)]
    assert lasts_ms == [math.inf, 7_200_000]
    broker.create_topics({plain: NewTopic(1, {})})
    assert broker.describe([plain]) == {plain: shapes[plain]}
    with pytest.raises(BadConfig, match=f"topics {refused} can't be created: .*no.such"):
        broker.create_topics({refused: NewTopic(1, {"no.such.setting": "1"})})
