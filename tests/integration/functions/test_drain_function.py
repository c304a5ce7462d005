"""The write-ahead log from the produce function to Kafka: real functions, a real broker, moto for AWS."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.functions.test_produce_many import set_option
from tests.servers.aws import Aws, Mapping
from tests.servers.own import create_topic, eventually, messages_of, records_of
from tests.support.builders import a_topic, an_event, load_handler

from keylane import routing
from keylane.drain import drain
from keylane.drain.drain import REASON, TOPIC
from keylane.produce import message_codec
from keylane_local.process.ports import HOST, Ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane.produce.message_codec import MessageBatch

VISIBILITY_S = 1
PARTITIONS = 3


class Log:
    """A queue with its dead letters, the functions on both of its sides, and the broker."""

    def __init__(
        self,
        aws: Aws,
        kafka: str,
        patch: pytest.MonkeyPatch,
        *,
        fifo: bool,
        visibility_s: int = VISIBILITY_S,
        deliveries: int = 3,
    ) -> None:
        """`deliveries`: how many an unknown topic has before its records are dead letters."""
        self.aws = aws
        self.kafka = kafka
        self.dead = aws.queue(fifo=fifo, visibility_s=VISIBILITY_S)
        self.url = aws.queue(fifo=fifo, visibility_s=visibility_s, dead=self.dead, receives=3)
        self.bucket = aws.bucket()
        variables = {
            "KEYLANE_KAFKA_BOOTSTRAP": kafka,
            "KEYLANE_QUEUE_URL": self.url,
            "KEYLANE_QUEUE_BUCKET": self.bucket,
            "KEYLANE_DLQ_URL": self.dead,
            "KEYLANE_METRICS": "false",
            # For moto, which shares this process and its machine with all else.
            "KEYLANE_PRODUCE_TIMEOUT_MS": "20000",
            **aws.environment,
        }
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr(drain, "DELIVERIES_OF_UNKNOWN", deliveries)
        patch.setattr(drain, "FIRST_PAUSE_S", 1)  # the shortest that a queue knows
        self._produce = load_handler("produce")
        self._drain = load_handler("drain")
        self.mapping = Mapping(aws, self.url, lambda event: dict(self._drain.lambda_handler(event, None)))

    def push(self, *records: dict[str, Any]) -> list[str]:
        """Push without waiting; the ids."""
        body = json.dumps({"records": records}).encode()
        answer = self._produce.lambda_handler(an_event("POST", "/push", body=body), None)
        assert answer["statusCode"] == 200, answer
        ids: list[str] = json.loads(answer["body"])["queued"]
        return ids

    def drain(self) -> None:
        self.mapping.drain()

    def drain_until_empty(self) -> None:
        def is_empty() -> bool:
            self.drain()
            return self.aws.count(self.url) == 0

        eventually(is_empty, 60)

    def letters(self) -> list[tuple[str, MessageBatch]]:
        """Reasons and contents of the dead letters, taken out."""
        found = self.aws.messages(self.dead)
        return [
            (
                message["MessageAttributes"][REASON]["StringValue"],
                message_codec.decode(message_codec.from_body(message["Body"])),
            )
            for message in found
        ]

    def close(self) -> None:
        """Close what the functions have open."""
        self._produce.application.parts().writer.wal.queue.close()
        self._produce.application.parts().writer.wal.bucket.close()
        self._drain.application.parts().dead_letters.close()
        self._drain.application.parts().bucket.close()
        self._drain.application.parts().deliveries.close()


@pytest.fixture
def wal(moto: Aws, kafka: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """One of the stand-ins: tests/contract/test_queue.py shows that LocalStack does the same."""
    log = Log(moto, kafka, monkeypatch, fifo=True)
    yield log
    log.close()


def test_asynchronous_writes_are_in_kafka_after_the_drain_with_id_and_time(wal: Log, topic: str, kafka: str):
    ids = wal.push(*({"topic": topic, "key": f"k{number}", "data": f"{number}"} for number in range(30)))
    assert not any(records_of(kafka, topic, partition) for partition in range(3))
    [before_ms] = _accepted(wal)
    wal.drain()
    assert wal.aws.count(wal.url) == 0
    for number, record_id in enumerate(ids):
        key = f"k{number}".encode()
        partition = routing.partition_for(key, 3)
        [message] = [each for each in messages_of(kafka, topic, partition) if each.key() == key]
        assert message.value() == b"%d" % number
        assert message.headers() == [("keylane-id", record_id.encode())]
        assert message.timestamp()[1] == before_ms


def _accepted(wal: Log) -> set[int]:
    """When the records in the queue were accepted; they stay there."""
    with wal.aws.client("sqs") as sqs:
        found = sqs.receive_message(QueueUrl=wal.url, MaxNumberOfMessages=10, VisibilityTimeout=0)
    return {
        message_codec.decode(message_codec.from_body(each["Body"])).accepted_ms for each in found["Messages"]
    }


def test_order_of_a_key_is_kept_over_many_requests(wal: Log, topic: str, kafka: str):
    for number in range(40):
        wal.push(*({"topic": topic, "key": key, "data": f"{number}"} for key in ("a", "b", "c", "d")))
    wal.drain_until_empty()
    for key in (b"a", b"b", b"c", b"d"):
        written = records_of(kafka, topic, routing.partition_for(key, 3))
        assert [value for found, value in written if found == key] == [b"%d" % each for each in range(40)]


def test_a_record_that_no_message_can_hold_goes_through_the_bucket(wal: Log, topic: str, kafka: str):
    large = "v" * 900_000
    wal.push({"topic": topic, "key": "k", "data": "before"}, {"topic": topic, "key": "k", "data": large})
    wal.push({"topic": topic, "key": "k", "data": "after"})
    with wal.aws.client("s3") as s3:
        [held] = s3.list_objects_v2(Bucket=wal.bucket)["Contents"]
    assert held["Key"].startswith(f"{topic}/")
    wal.drain_until_empty()
    values = [value for _, value in records_of(kafka, topic, routing.partition_for(b"k", 3))]
    assert values == [b"before", large.encode(), b"after"]


def test_an_unknown_topic_ends_in_the_dead_letters_and_holds_up_nothing(wal: Log, topic: str, kafka: str):
    unknown = a_topic()
    [record_id] = wal.push({"topic": unknown, "key": "k", "data": "lost?"})
    wal.push({"topic": topic, "key": "k", "data": "1"})
    wal.drain()
    assert records_of(kafka, topic, routing.partition_for(b"k", 3)) == [(b"k", b"1")]
    wal.drain_until_empty()
    [(reason, batch)] = wal.letters()
    assert reason == "UNKNOWN_TOPIC_OR_PARTITION"
    assert batch.record_id(0) == record_id
    assert batch.records[0][1].value == b"lost?"
    assert len(wal.mapping.again) == 2  # it had three chances


def test_a_topic_that_comes_to_be_in_time_gets_its_records_long_before_the_queue_s_own_time_is_over(
    moto: Aws, kafka: str, monkeypatch: pytest.MonkeyPatch
):
    wal = Log(moto, kafka, monkeypatch, fifo=True, visibility_s=600)
    late = a_topic()
    wal.push({"topic": late, "key": "k", "data": "1"})
    wal.drain()
    create_topic(kafka, late, 1)
    wal.drain_until_empty()
    assert records_of(kafka, late, 0) == [(b"k", b"1")]
    wal.close()


def test_a_record_over_its_topics_limit_is_the_only_dead_one_of_its_message(wal: Log, topic: str, kafka: str):
    set_option(kafka, topic, "max.message.bytes", "2000")
    data = ["1", "x" * 5_000, "2"]
    wal.push(*({"topic": topic, "key": "k", "data": each} for each in data))
    wal.drain_until_empty()
    assert [value for _, value in records_of(kafka, topic, routing.partition_for(b"k", 3))] == [b"1", b"2"]
    [(reason, batch)] = wal.letters()
    assert reason == "MESSAGE_TOO_LARGE"
    assert [number for number, _ in batch.records] == [1]


def test_a_message_that_fails_each_time_is_moved_by_sqs_and_the_others_go_on(
    wal: Log, topic: str, kafka: str
):
    drained = wal.mapping.invoke
    poison = "poison"
    with wal.aws.client("sqs") as sqs:
        sqs.send_message(
            QueueUrl=wal.url, MessageBody=poison, MessageGroupId="g", MessageDeduplicationId=uuid.uuid4().hex
        )

    def failing(event: dict[str, Any]) -> dict[str, Any]:
        good = [each for each in event["Records"] if each["body"] != poison]
        bad = [{"itemIdentifier": each["messageId"]} for each in event["Records"] if each["body"] == poison]
        answer = drained({"Records": good})
        return {"batchItemFailures": answer["batchItemFailures"] + bad}

    wal.mapping.invoke = failing
    wal.push({"topic": topic, "key": "k", "data": "1"})
    wal.drain_until_empty()
    assert [message["Body"] for message in wal.aws.messages(wal.dead)] == [poison]
    assert records_of(kafka, topic, routing.partition_for(b"k", 3)) == [(b"k", b"1")]


def test_a_foreign_message_is_a_dead_letter_at_once(wal: Log):
    with wal.aws.client("sqs") as sqs:
        sqs.send_message(
            QueueUrl=wal.url, MessageBody="hello", MessageGroupId="g", MessageDeduplicationId=uuid.uuid4().hex
        )
    wal.drain()
    [letter] = wal.aws.messages(wal.dead)
    assert letter["Body"] == "hello"
    assert letter["MessageAttributes"][REASON]["StringValue"] == "MALFORMED_MESSAGE"
    assert TOPIC not in letter["MessageAttributes"]


def test_a_function_that_dies_between_kafka_and_its_answer_leaves_duplicates_under_one_id(
    wal: Log, topic: str, kafka: str
):
    drained = wal.mapping.invoke

    def dying(event: dict[str, Any]) -> dict[str, Any]:
        wal.mapping.invoke = drained
        drained(event)
        raise ConnectionResetError

    ids = wal.push(*({"topic": topic, "key": "k", "data": f"{number}"} for number in range(3)))
    wal.mapping.invoke = dying
    with pytest.raises(ConnectionResetError):
        wal.drain()
    wal.drain_until_empty()
    messages = messages_of(kafka, topic, routing.partition_for(b"k", 3))
    assert [message.value() for message in messages] == [b"0", b"1", b"2"] * 2
    assert [dict(message.headers())["keylane-id"].decode() for message in messages] == ids * 2


def test_a_standard_queue_loses_nothing(moto: Aws, topic: str, kafka: str, monkeypatch: pytest.MonkeyPatch):
    log = Log(moto, kafka, monkeypatch, fifo=False)
    expected = set()
    for number in range(20):
        log.push(*({"topic": topic, "key": key, "data": f"{key}{number}"} for key in ("a", "b")))
        expected |= {f"a{number}".encode(), f"b{number}".encode()}
    unknown = a_topic()
    log.push({"topic": unknown, "data": "v"})
    log.drain_until_empty()
    assert {value for number in range(3) for _, value in records_of(kafka, topic, number)} == expected
    assert [reason for reason, _ in log.letters()] == ["UNKNOWN_TOPIC_OR_PARTITION"]
    log.close()


def test_a_write_that_kafka_does_not_take_in_time_is_queued_where_that_is_set_and_written_later(
    moto: Aws, topic: str, kafka: str, monkeypatch: pytest.MonkeyPatch
):
    log = Log(moto, kafka, monkeypatch, fifo=True)
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", f"{HOST}:{Ports().any()}")  # nobody there
    monkeypatch.setenv("KEYLANE_QUEUE_ON_FAILURE", "true")
    monkeypatch.setenv("KEYLANE_PRODUCE_TIMEOUT_MS", "3000")
    function = load_handler("produce")
    answer = function.lambda_handler(an_event("PUT", f"/topics/{topic}/keys/k", body=b"v"), None)
    assert answer["statusCode"] == 202, answer
    record_id = json.loads(answer["body"])["id"]
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", kafka)
    log.drain()
    [message] = messages_of(kafka, topic, routing.partition_for(b"k", 3))
    assert (message.key(), message.value()) == (b"k", b"v")
    assert message.headers() == [("keylane-id", record_id.encode())]
    function.application.parts().writer.wal.queue.close()
    log.close()
