"""Dead letters move back into the write-ahead log, in a stand-in of SQS, and then into a real Kafka.

tests/contract/test_queue.py has what the log asks of SQS, in both stand-ins.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.integration.functions.test_drain_function import Log
from tests.servers.aws import Aws, receive
from tests.servers.own import create_topic, messages_of, records_of
from tests.support.builders import a_topic

from keylane.adapters.aws.sqs import SqsQueue
from keylane.drain.drain import REASON, SUPERSEDED, TOPIC
from keylane.model.records import NewRecord
from keylane.ports import Clock
from keylane.produce import message_codec
from keylane.produce.message_codec import MessageBatch
from keylane_cli import dead_letters
from keylane_cli.replay import ReplayRequest, replay
from keylane_client.cli.commands import keylane
from keylane_local.errors import BadInput, StackError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result


@pytest.fixture
def wal(request: pytest.FixtureRequest, kafka: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """A write-ahead log in moto, or in the stand-in that a test names."""
    aws = Aws(request.getfixturevalue(getattr(request, "param", "moto")).url)
    monkeypatch.setattr(dead_letters, "WAIT_S", 0)
    log = Log(aws, kafka, monkeypatch, fifo=True, deliveries=1)
    yield log
    log.close()


def send_to_the_dead_letters(wal: Log, topic: str, numbers: range) -> list[str]:
    """Push to a topic that does not exist until all records are dead letters; return their ids."""
    ids = []
    for number in numbers:
        ids += wal.push({"topic": topic, "key": "k", "data": f"{number}"})
    wal.drain_until_empty()
    return ids


@pytest.mark.parametrize("wal", ["moto", "localstack"], indirect=True)
def test_dead_letters_reach_kafka_in_order_with_their_ids_once_the_cause_is_fixed(wal: Log, kafka: str):
    topic = a_topic()
    ids = send_to_the_dead_letters(wal, topic, range(25))
    create_topic(kafka, topic, 1)
    done = replay(ReplayRequest(wal.dead, wal.url), wal.aws.environment)
    assert done.moved == {(topic, "UNKNOWN_TOPIC_OR_PARTITION"): 25}
    assert done.records == 25
    assert wal.aws.count(wal.dead) == 0
    wal.drain_until_empty()
    assert [value for _, value in records_of(kafka, topic, 0)] == [b"%d" % number for number in range(25)]
    found = [dict(message.headers())["keylane-id"].decode() for message in messages_of(kafka, topic, 0)]
    assert found == ids


def test_a_replay_of_a_topic_moves_only_its_own(wal: Log):
    one, other = a_topic(), a_topic()
    send_to_the_dead_letters(wal, one, range(3))
    send_to_the_dead_letters(wal, other, range(2))
    reason = "UNKNOWN_TOPIC_OR_PARTITION"
    done = replay(ReplayRequest(wal.dead, wal.url, topic=one), wal.aws.environment)
    assert done.moved == {(one, reason): 3}
    assert done.left == {(other, reason): 2}
    assert (wal.aws.count(wal.dead), wal.aws.count(wal.url)) == (2, 3)
    with wal.aws.client("sqs") as sqs:
        assert len(receive(sqs, wal.dead)) == 2  # what is left can be seen at once


def test_letters_whose_keys_have_newer_records_stay_unless_they_are_asked_for(wal: Log, kafka: str):
    topic = a_topic()
    create_topic(kafka, topic, 1)
    batch = MessageBatch(b"i" * 16, 1, topic, ((0, NewRecord(topic, b"k", b"older")),))
    attributes = {REASON: "INVALID_RECORD", TOPIC: topic, SUPERSEDED: "true"}
    with wal.aws.client("sqs") as sqs:
        sqs.send_message(
            QueueUrl=wal.dead,
            MessageBody=message_codec.to_body(message_codec.encode(batch)),
            MessageGroupId="g",
            MessageDeduplicationId="1",
            MessageAttributes={
                name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
            },
        )
    kind = topic, "INVALID_RECORD (superseded)"
    done = replay(ReplayRequest(wal.dead, wal.url), wal.aws.environment)
    assert (done.moved, done.left) == ({}, {kind: 1})
    done = replay(ReplayRequest(wal.dead, wal.url, superseded=True), wal.aws.environment)
    assert (done.moved, done.left) == ({kind: 1}, {})


def test_a_kill_between_sending_and_deleting_neither_loses_nor_duplicates(
    wal: Log, monkeypatch: pytest.MonkeyPatch
):
    topic = a_topic()
    send_to_the_dead_letters(wal, topic, range(12))
    send = SqsQueue.send

    def killed(*given):
        send(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SqsQueue, "send", killed)
        with pytest.raises(KeyboardInterrupt):
            replay(ReplayRequest(wal.dead, wal.url), wal.aws.environment)
    assert (wal.aws.count(wal.dead), wal.aws.count(wal.url)) == (12, 10)
    replay(ReplayRequest(wal.dead, wal.url), wal.aws.environment)
    assert (wal.aws.count(wal.dead), wal.aws.count(wal.url)) == (0, 12)


def test_letters_that_arrive_during_the_run_stay(wal: Log):
    send_to_the_dead_letters(wal, a_topic(), range(2))
    done = replay(ReplayRequest(wal.dead, wal.url), wal.aws.environment, clock=Clock(now_ms=lambda: 0))
    assert not done.moved
    assert sum(done.left.values()) == 2


def test_dead_letters_stay_when_the_log_rejects_them(wal: Log):
    send_to_the_dead_letters(wal, a_topic(), range(2))
    gone = wal.url.replace("/q", "/x")
    with pytest.raises(StackError, match="the remaining ones stay"):
        replay(ReplayRequest(wal.dead, gone), wal.aws.environment)
    assert wal.aws.count(wal.dead) == 2


def test_queues_that_cannot_belong_together_are_rejected(moto: Aws):
    fifo, standard = moto.queue(), moto.queue(fifo=False)
    for source, target in ((fifo, fifo), (fifo, standard), (standard, fifo)):
        with pytest.raises(BadInput):
            replay(ReplayRequest(source, target), moto.environment)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(keylane, ["dlq", *arguments])


def test_dead_letters_are_listed_shown_and_moved_by_commands(wal: Log, monkeypatch: pytest.MonkeyPatch):
    topic = a_topic()
    send_to_the_dead_letters(wal, topic, range(3))
    monkeypatch.setenv("KEYLANE_DLQ_URL", wal.dead)
    reason = "UNKNOWN_TOPIC_OR_PARTITION"
    assert f"     3 messages       3 records  topic {topic}  {reason}  since 2" in run("list").output
    [found] = map(json.loads, run("list", "--json").stdout.splitlines())
    assert (found["topic"], found["reason"], found["messages"], found["records"]) == (topic, reason, 3, 3)
    assert "no dead letters of topic other" in run("list", "--topic", "other").output
    lines = run("show", "-n", "2").stdout.splitlines()
    assert len(lines) == 4
    assert f"\t{topic}\t{reason}\t" in lines[0]
    assert lines[1::2] == ["    k\t0", "    k\t1"]
    shown = [json.loads(line) for line in run("show", "--json").stdout.splitlines()]
    assert [each["records"][0]["value"] for each in shown] == ["0", "1", "2"]
    assert topic in shown[0]["detail"]
    assert wal.aws.count(wal.dead) == 3
    moved = run("replay", "--to", wal.url)
    assert "moved 3 messages with 3 records; 0 are left" in moved.output
    assert json.loads(run("replay", "--json", "--to", wal.url).stdout) == {
        "moved": 0,
        "records": 0,
        "left": 0,
    }


def test_a_queue_that_is_missing_or_away_is_one_sentence(wal: Log, monkeypatch: pytest.MonkeyPatch):
    missing = run("list", "--queue-url", wal.dead.replace("/q", "/x")).exception
    assert isinstance(missing, StackError)
    assert "NonExistentQueue" in str(missing)
    assert missing.exit_code == 3
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    away = run("show", "--queue-url", wal.dead).exception
    assert isinstance(away, StackError)
    assert "may this machine reach it" in str(away)
    assert away.exit_code == 5
