from __future__ import annotations

import time
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.servers.own import own_kafka, wait_writable


def _new_topic(kafka: str, partitions: int = 1) -> str:
    topic = f"local-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(20)
    return topic


def test_a_record_is_written_and_read_with_its_headers(kafka):
    topic = _new_topic(kafka)
    producer = Producer({"bootstrap.servers": kafka, "acks": "all"})
    producer.produce(topic, b"value", b"key", headers=[("h", b"1")])
    assert producer.flush(60) == 0

    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(10)
        assert message is not None
        assert (message.key(), message.value(), message.headers()) == (b"key", b"value", [("h", b"1")])
    finally:
        consumer.close()


def test_a_value_of_one_mebibyte_fits_with_key_and_headers(kafka):
    topic = _new_topic(kafka)
    producer = Producer({"bootstrap.servers": kafka, "message.max.bytes": 4_000_000})
    failures = []
    producer.produce(
        topic,
        b"v" * 1024 * 1024,
        b"k" * 64 * 1024,
        headers=[("h", b"x" * 1000)],
        on_delivery=lambda error, _: failures.append(error),
    )
    assert producer.flush(60) == 0
    assert failures == [None]


def test_a_request_for_a_topic_never_creates_it(kafka):
    admin = AdminClient({"bootstrap.servers": kafka})
    topic = f"absent-{uuid.uuid4().hex[:8]}"
    assert admin.list_topics(topic, timeout=60).topics[topic].error is not None
    assert topic not in admin.list_topics(timeout=60).topics


def test_records_survive_a_crash_of_the_broker(broker, kafka):
    topic = _new_topic(kafka)
    producer = Producer({"bootstrap.servers": kafka, "acks": "all"})
    producer.produce(topic, b"before")
    assert producer.flush(60) == 0
    broker.kill()
    assert not broker.running
    broker.start()
    wait_writable(broker)  # others write to it after this test
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline, message = time.monotonic() + 120, None
        while (message is None or message.error()) and time.monotonic() < deadline:
            message = consumer.poll(1)
        assert message is not None
        assert message.value() == b"before"
    finally:
        consumer.close()


def test_a_broker_starts_on_a_machine_whose_java_is_turkish(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=tr -Duser.country=TR")
    with own_kafka(tmp_path) as broker:
        wait_writable(broker)
        broker.stop()


def test_a_broker_starts_in_a_folder_whose_name_is_not_ascii(tmp_path):
    with own_kafka(tmp_path / "pfad mit ü") as broker:
        wait_writable(broker)
        broker.stop()
