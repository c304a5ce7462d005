"""AWS stand-ins over HTTP, with queues and buckets, and a poller that behaves like Lambda's."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import threading
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REGION = "us-east-1"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


_LOCK = threading.Lock()


@functools.cache
def _session() -> boto3.Session:
    """The session of all clients. With one of its own a client takes 80 ms of CPU, and not 3."""
    return boto3.Session(KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SECRET_ACCESS_KEY"], region_name=REGION)


@dataclass(frozen=True, slots=True)
class Aws:
    """A stand-in of AWS at `url`."""

    url: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a function's clients use it."""
        return {**KEYS, "AWS_ENDPOINT_URL": self.url, "AWS_REGION": REGION}

    @contextlib.contextmanager
    def client(self, service: str) -> Iterator[Any]:
        config = Config(connect_timeout=5, read_timeout=30, s3={"addressing_style": "path"})
        with _LOCK:  # sessions are for one thread
            client = _session().client(service, endpoint_url=self.url, config=config)
        try:
            yield client
        finally:
            client.close()

    def queue(self, *, fifo: bool = True, visibility_s: int = 30, **more: Any) -> str:
        """Create a queue and return its URL; `dead`: its dead-letter queue, after `receives` deliveries."""
        attributes = {"VisibilityTimeout": str(visibility_s)} | ({"FifoQueue": "true"} if fifo else {})
        with self.client("sqs") as sqs:
            if "dead" in more:
                attributes["RedrivePolicy"] = json.dumps(
                    {"deadLetterTargetArn": arn_of(sqs, more["dead"]), "maxReceiveCount": more["receives"]}
                )
            name = f"q{uuid.uuid4().hex}" + (".fifo" if fifo else "")
            url: str = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
            return url

    def bucket(self) -> str:
        """Create a bucket and return its name."""
        name = f"b{uuid.uuid4().hex}"
        with self.client("s3") as s3:
            s3.create_bucket(Bucket=name)
        return name

    def messages(self, url: str, *, wait_s: int = 0) -> list[dict[str, Any]]:
        """Receive and delete all available messages of a queue; return them."""
        found: list[dict[str, Any]] = []
        with self.client("sqs") as sqs:
            while batch := receive(sqs, url, wait_s=wait_s):
                found += batch
                for message in batch:
                    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found

    def count(self, url: str) -> int:
        """Return the number of messages in a queue, including those in flight.

        The queue counts one kind after the other, and neither has a message that becomes visible meanwhile.
        So it is asked twice, and the larger number counts.
        """
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        with self.client("sqs") as sqs:
            asked = [sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names) for _ in range(2)]
        return max(sum(int(each["Attributes"][name]) for name in names) for each in asked)


def arn_of(sqs: Any, url: str) -> str:
    asked = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    arn: str = asked["Attributes"]["QueueArn"]
    return arn


def receive(sqs: Any, url: str, *, wait_s: int = 0, count: int = 10) -> list[dict[str, Any]]:
    """Receive one batch, like the event source mapping."""
    found: list[dict[str, Any]] = sqs.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=count,
        WaitTimeSeconds=wait_s,
        AttributeNames=["All"],
        MessageAttributeNames=["All"],
    ).get("Messages", [])
    return found


def event_of(messages: list[dict[str, Any]], url: str) -> dict[str, Any]:
    """Return the event that Lambda builds from a batch."""
    return {
        "Records": [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": f"arn:aws:sqs:{REGION}:000000000000:{url.rpartition('/')[2]}",
                "awsRegion": REGION,
            }
            for message in messages
        ]
    }


@contextlib.contextmanager
def moto() -> Iterator[Aws]:
    """Yield moto's server, in threads of this process, with FIFO queues that keep their order as on AWS.

    moto redelivers a batch in reverse order, and loses a message that arrives while another is being deleted.
    Therefore one request is served at a time, and the messages to receive are selected here.
    """
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 (it takes a while to import)
    from moto.sqs.models import SQSBackend  # noqa: PLC0415

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address=HOST, port=0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SQSBackend, "receive_message", _receiving(SQSBackend.receive_message))
        server.start()
        server._server.app = _one_at_a_time(server._server.app)
        try:
            yield Aws(f"http://{HOST}:{server.get_host_and_port()[1]}")
        finally:
            server.stop()


def _one_at_a_time(app: Callable[..., Any]) -> Callable[..., Any]:
    lock = threading.Lock()

    def serve(environ: Any, start_response: Any) -> Any:
        with lock:
            return app(environ, start_response)

    return serve


def _receiving(receive_message: Callable[..., Any]) -> Callable[..., Any]:
    """Receive from FIFO queues the oldest message first, and none of a group with a message in flight."""

    def receive(backend: Any, queue_name: str, count: int, *more: Any, **named: Any) -> Any:
        queue = backend.get_queue(queue_name)
        if queue.fifo_queue:
            busy = {message.group_id for message in queue._messages if not message.visible}
            given = [message for message in queue._messages if message.group_id not in busy][:count]
            kept = queue._messages
            queue.pending_messages.clear()
            queue._messages = list(given)
            try:
                return receive_message(backend, queue_name, count, *more, **named)
            finally:
                dead = [message for message in given if message not in queue._messages]
                queue._messages = [message for message in kept if message not in dead]
        return receive_message(backend, queue_name, count, *more, **named)

    return receive


@dataclass
class Mapping:
    """An event source mapping: it passes batches to a function, and deletes the messages that succeeded.

    `invoke` takes an event and returns the function's response; an exception fails the whole batch.
    `again` has the bodies of messages that were reported as failed.
    """

    aws: Aws
    url: str
    invoke: Callable[[dict[str, Any]], dict[str, Any]]
    batches: int = 0
    again: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def poll(self, sqs: Any, wait_s: int = 0) -> int:
        """Pass one batch to the function; return its number of messages."""
        messages = receive(sqs, self.url, wait_s=wait_s)
        if not messages:
            return 0
        self.batches += 1
        answer = self.invoke(event_of(messages, self.url))
        failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        self.again += [message["Body"] for message in messages if message["MessageId"] in failed]
        done = [message for message in messages if message["MessageId"] not in failed]
        if done:
            entries = [
                {"Id": str(place), "ReceiptHandle": message["ReceiptHandle"]}
                for place, message in enumerate(done)
            ]
            sqs.delete_message_batch(QueueUrl=self.url, Entries=entries)
        return len(messages)

    def drain(self) -> None:
        """Poll until a batch is empty."""
        with self.aws.client("sqs") as sqs:
            while self.poll(sqs):
                pass

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Poll in a thread during the block; errors of the thread fail the test at its end."""
        stop = threading.Event()

        def run() -> None:
            with self.aws.client("sqs") as sqs:
                while not stop.is_set():
                    try:
                        if not self.poll(sqs):
                            stop.wait(0.1)
                    except Exception as error:  # noqa: BLE001 (raised below)
                        self.errors.append(error)
                        return

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not self.errors, self.errors
