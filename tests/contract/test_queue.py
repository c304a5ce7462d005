"""The ports Queue and Bucket: what SQS and S3 do with what the adapters send, in two stand-ins of AWS."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.aws import Aws, receive
from tests.servers.own import deadline

from keylane.adapters.aws.client import AwsRefused
from keylane.adapters.aws.s3 import S3Bucket
from keylane.adapters.aws.settings import AwsSettings
from keylane.adapters.aws.sqs import SqsQueue
from keylane.errors import QueueUnavailable, Unconfirmed
from keylane.ports import Message
from keylane_local.process.ports import HOST, Ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Open = Callable[..., SqsQueue]

pytestmark = pytest.mark.integration

SETTINGS = AwsSettings("us-east-1", 5_000)
LIMIT = 262_144


@pytest.fixture(params=["moto", "localstack"])
def aws(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Aws:
    found = request.getfixturevalue(request.param)
    stand_in = found if isinstance(found, Aws) else Aws(found.url)
    for name, value in stand_in.environment.items():
        monkeypatch.setenv(name, value)
    return stand_in


@pytest.fixture
def queue() -> Iterator[Open]:
    """Opens queues that are closed at the end."""
    opened: list[SqsQueue] = []

    def make(url: str, limit_bytes: int = LIMIT) -> SqsQueue:
        opened.append(SqsQueue(url, limit_bytes, SETTINGS))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def numbered(count: int, group: str | None = "g", size: int = 3) -> list[Message]:
    return [Message(f"{number:03}".ljust(size, "."), group, f"id-{number}") for number in range(count)]


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["Body"] for message in messages]


def test_messages_of_a_group_come_in_their_order(aws: Aws, queue: Open):
    url = aws.queue()
    messages = numbered(25)
    assert queue(url).send(messages, deadline(30_000)) == [None] * 25
    assert bodies(aws.messages(url)) == [message.body for message in messages]


def test_a_message_that_is_sent_twice_is_there_once(aws: Aws, queue: Open):
    url = aws.queue()
    sender = queue(url)
    for _ in range(2):
        assert sender.send(numbered(3), deadline(30_000)) == [None] * 3
    assert len(aws.messages(url)) == 3


def test_messages_arrive_without_order_or_groups_in_a_standard_queue(aws: Aws, queue: Open):
    url = aws.queue(fifo=False)
    assert queue(url).send(numbered(25, group=None), deadline(30_000)) == [None] * 25
    assert sorted(bodies(aws.messages(url))) == [f"{number:03}" for number in range(25)]


def test_a_batch_stays_within_the_limit_in_bytes(aws: Aws, queue: Open):
    url = aws.queue(fifo=False)
    assert queue(url).send(numbered(7, None, 100_000), deadline(30_000)) == [None] * 7
    assert sorted(map(len, bodies(aws.messages(url)))) == [100_000] * 7


def test_a_message_of_a_mebibyte_is_taken_and_a_larger_one_refused_alone(aws: Aws, queue: Open):
    url = aws.queue()
    most = 1_048_576
    messages = [Message("a" * most, "a", "1"), Message("b" * (most + 1), "b", "2"), Message("c", "c", "3")]
    first, second, third = queue(url, most).send(messages, deadline(30_000))
    assert (first, third) == (None, None)
    assert isinstance(second, AwsRefused)
    assert sorted(map(len, bodies(aws.messages(url)))) == [1, most]


def test_attributes_give_the_reason_of_a_dead_letter(aws: Aws, queue: Open):
    url = aws.queue()
    queue(url).send([Message("b", "g", "1", {"keylane-reason": "flüge"})], deadline(30_000))
    with aws.client("sqs") as sqs:
        [message] = receive(sqs, url)
    assert message["MessageAttributes"]["keylane-reason"]["StringValue"] == "flüge"
    assert message["Attributes"]["MessageGroupId"] == "g"


@pytest.mark.parametrize("fifo", [True, False])
def test_a_queue_that_is_not_there_refuses_at_once(aws: Aws, queue: Open, fifo: bool):
    url = aws.queue(fifo=fifo).replace("/q", "/x")
    results = queue(url).send(numbered(2), deadline(30_000))
    assert [type(result) for result in results] == [AwsRefused, AwsRefused]


def test_objects_come_back_as_they_were_and_absent_ones_are_none(aws: Aws):
    bucket = S3Bucket(aws.bucket(), SETTINGS)
    try:
        data = bytes(range(256)) * 4_000
        bucket.put("t/name", data, deadline(30_000))
        assert bucket.get("t/name", deadline(30_000)) == data
        assert bucket.get("t/other", deadline(30_000)) is None
    finally:
        bucket.close()


def test_a_bucket_that_is_not_there_refuses(aws: Aws):
    bucket = S3Bucket("nowhere-to-be-found", SETTINGS)
    try:
        with pytest.raises(AwsRefused):
            bucket.put("t/name", b"v", deadline(30_000))
    finally:
        bucket.close()


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens where AWS should be."""
    for name, value in Aws(f"http://{HOST}:{Ports().any()}").environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("nobody")
def test_with_aws_away_the_error_says_in_time_that_nothing_was_queued(queue: Open):
    results = queue(f"http://{HOST}:1/1/q.fifo").send(numbered(2), deadline(300))
    assert [isinstance(result, QueueUnavailable) for result in results] == [True, True]
    bucket = S3Bucket("b", SETTINGS)
    with pytest.raises(QueueUnavailable):
        bucket.get("t/name", deadline(300))
    bucket.close()


class Scripted:
    """SQS' client by script: an answer or error for each call; all is taken once the script is at its end."""

    def __init__(self, *script: Callable[[list[str]], Any]) -> None:
        self.script = list(script)
        self.calls: list[list[str]] = []

    def send_message_batch(self, Entries: list[dict[str, Any]], **_: Any) -> Any:  # noqa: N803
        ids = [entry["Id"] for entry in Entries]
        self.calls.append([entry["MessageBody"] for entry in Entries])
        return self.script.pop(0)(ids) if self.script else took(ids)

    def change_message_visibility_batch(self, Entries: list[dict[str, Any]], **_: Any) -> Any:  # noqa: N803
        ids = [entry["Id"] for entry in Entries]
        self.calls.append([entry["ReceiptHandle"] for entry in Entries])
        return self.script.pop(0)(ids) if self.script else took(ids)

    def close(self) -> None:
        pass


def took(ids: list[str]) -> dict[str, Any]:
    return {"Successful": [{"Id": each} for each in ids]}


def fails(*places: int, ours: bool = False) -> Callable[[list[str]], dict[str, Any]]:
    """Some fail, at these places of the batch."""

    def answer(ids: list[str]) -> dict[str, Any]:
        failed = [{"Id": ids[place], "SenderFault": ours, "Code": "InternalError"} for place in places]
        return {**took([each for place, each in enumerate(ids) if place not in places]), "Failed": failed}

    return answer


def raises(error: Exception) -> Callable[[list[str]], Any]:
    def answer(_: list[str]) -> Any:
        raise error

    return answer


def scripted(
    queue: Open, *script: Callable[[list[str]], Any], fifo: bool = True
) -> tuple[SqsQueue, Scripted]:
    sender = queue("http://sqs/1/q.fifo" if fifo else "http://sqs/1/q")
    client = Scripted(*script)
    sender._client = client
    return sender, client


def test_what_failed_of_a_batch_is_sent_again(queue: Open):
    sender, client = scripted(queue, fails(1), fails(0), fifo=False)
    assert sender.send(numbered(3, None), deadline()) == [None] * 3
    assert client.calls == [["000", "001", "002"], ["001"], ["001"]]


def test_one_message_of_a_group_is_sent_at_a_time_so_that_none_is_overtaken(queue: Open):
    sender, client = scripted(queue, fails(0))
    messages = [Message("a1", "a", "1"), Message("a2", "a", "2"), Message("b1", "b", "3")]
    assert sender.send(messages, deadline()) == [None] * 3
    assert client.calls == [["a1", "b1"], ["a1"], ["a2"]]


def test_after_a_message_that_is_refused_its_group_is_not_sent(queue: Open):
    sender, client = scripted(queue, fails(0, ours=True))
    messages = [Message("a1", "a", "1"), Message("a2", "a", "2"), Message("b1", "b", "3")]
    first, second, third = sender.send(messages, deadline())
    assert isinstance(first, AwsRefused)
    assert isinstance(second, AwsRefused)
    assert third is None
    assert client.calls == [["a1", "b1"]]


def test_a_message_that_may_have_been_sent_stays_uncertain_even_if_a_retry_was_refused(queue: Open):
    from botocore.exceptions import EndpointConnectionError, ReadTimeoutError  # noqa: PLC0415

    lost = raises(ReadTimeoutError(endpoint_url="http://sqs"))
    away = raises(EndpointConnectionError(endpoint_url="http://sqs"))
    sender, _ = scripted(queue, lost, *[away] * 100)
    [result] = sender.send(numbered(1), deadline(400))
    assert isinstance(result, Unconfirmed)
    sender, _ = scripted(queue, lost)
    assert sender.send(numbered(1), deadline()) == [None]


@pytest.mark.parametrize(
    ("code", "status", "is_tried_again"),
    [
        ("AccessDenied", 403, False),
        ("AWS.SimpleQueueService.NonExistentQueue", 400, False),
        ("RequestThrottled", 403, True),
        ("ServiceUnavailable", 503, True),
    ],
)
def test_errors_of_the_whole_call(queue: Open, code: str, status: int, is_tried_again: bool):
    from botocore.exceptions import ClientError  # noqa: PLC0415

    told = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    sender, client = scripted(queue, raises(ClientError(told, "SendMessageBatch")))
    [result] = sender.send(numbered(1), deadline())
    assert (result is None) == is_tried_again
    assert len(client.calls) == 1 + is_tried_again
    assert json.dumps(str(result)).find(code) < 0


@pytest.mark.parametrize(
    ("first", "again"),
    [
        pytest.param(fails(1), [["r1"]], id="that failed in the queue"),
        pytest.param(fails(1, ours=True), [], id="not one whose receipt has expired"),
    ],
)
def test_a_pause_is_asked_for_again(queue: Open, first: Callable[[list[str]], Any], again: list[list[str]]):
    sender, client = scripted(queue, first)
    sender.postpone({"r0": 1, "r1": 2}, deadline())
    assert client.calls == [["r0", "r1"], *again]


def test_pauses_are_asked_for_again_after_a_lost_answer_until_the_deadline_and_not_where_they_are_refused(
    queue: Open,
):
    from botocore.exceptions import (  # noqa: PLC0415
        ClientError,
        EndpointConnectionError,
        ReadTimeoutError,
    )

    lost = raises(ReadTimeoutError(endpoint_url="http://sqs"))
    pauses = {f"r{number}": 1 for number in range(12)}
    first, second = list(pauses)[:10], list(pauses)[10:]
    sender, client = scripted(queue, lost)
    sender.postpone(pauses, deadline())
    assert client.calls == [first, first, second]
    sender, _ = scripted(queue, *[lost] * 100)
    with pytest.raises(QueueUnavailable, match="did not answer in time"):
        sender.postpone(pauses, deadline(400))
    away = raises(EndpointConnectionError(endpoint_url="http://sqs"))
    sender, _ = scripted(queue, *[away] * 100)
    with pytest.raises(QueueUnavailable, match="can't be reached"):
        sender.postpone(pauses, deadline(400))
    denied = {"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
    sender, client = scripted(queue, raises(ClientError(denied, "ChangeMessageVisibilityBatch")))
    with pytest.raises(AwsRefused):
        sender.postpone(pauses, deadline())
    assert client.calls == [first]
