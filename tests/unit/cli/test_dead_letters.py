"""What the commands of a dead-letter queue print, and exit with where SQS does not do what is asked."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from click.testing import CliRunner

from keylane_cli import dead_letters, dlq
from keylane_cli.dead_letters import DeadLetter, DeadLetterQueue, QueueFailed, translate_queue_errors
from keylane_client.cli.errors import ExitCode

URL = "https://sqs.eu-central-1.amazonaws.com/1/dead"


def refusal(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "ReceiveMessage"
    )


@pytest.mark.parametrize(
    ("raised", "exit_code", "advice"),
    [
        (EndpointConnectionError(endpoint_url=URL), ExitCode.UNREACHABLE, "is the URL right"),
        (refusal("RequestThrottled"), ExitCode.UNAVAILABLE, "try again later"),
        (refusal("OverLimit"), ExitCode.UNAVAILABLE, "try again later"),
        (refusal("InternalError", 500), ExitCode.UNAVAILABLE, "try again later"),
        (ReadTimeoutError(endpoint_url=URL), ExitCode.UNAVAILABLE, "try again later"),
        (refusal("AWS.SimpleQueueService.NonExistentQueue"), ExitCode.NOT_FOUND, "DeadLettersUrl"),
        (refusal("InvalidClientTokenId"), ExitCode.ACCESS_DENIED, "Log in"),
        (refusal("AccessDenied"), ExitCode.ACCESS_DENIED, "Use a role"),
        (refusal("Unheard"), ExitCode.FAILED, "Unheard"),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_what_sqs_does_not_do_has_an_exit_code_and_advice(
    raised: Exception, exit_code: ExitCode, advice: str
):
    with pytest.raises(QueueFailed, match=advice) as failed, translate_queue_errors():
        raise raised
    assert failed.value.exit_code == exit_code


HOSTILE = "\x1b]0;T\x07\r\nFAKE\u202e"
SHOWN = r"\x1b]0;T\x07\r\nFAKE\u202e"
LETTER = DeadLetter("1", "handle", "", None, 0, HOSTILE, HOSTILE, HOSTILE, (), HOSTILE)


@pytest.mark.parametrize("command", ["list", "show"])
def test_what_whoever_sent_a_message_wrote_is_printed_with_escapes(
    monkeypatch: pytest.MonkeyPatch, command: str
):
    batches = iter([[LETTER], []])
    queue = SimpleNamespace(count=lambda: 1, receive=lambda: next(batches))
    monkeypatch.setattr(dlq, "_opened", lambda _: nullcontext(queue))
    output = CliRunner().invoke(dlq.dlq, [command, "--queue-url", URL], catch_exceptions=False).output
    assert SHOWN in output
    assert not set(HOSTILE).difference("\n", SHOWN) & set(output)


def test_a_message_that_sqs_delivers_twice_counts_once_and_does_not_end_the_queue(
    monkeypatch: pytest.MonkeyPatch,
):
    def message(name: str, number: int) -> dict[str, object]:
        handle = f"{name}{number}"
        return {"MessageId": name, "ReceiptHandle": handle, "Body": "x", "Attributes": {"SentTimestamp": "1"}}

    deliveries = iter(
        [
            [message("a", 1), message("a", 2), message("b", 1)],
            [message("a", 3)],
            [message("c", 1)],
            [message("b", 2), message("c", 2)],
            [message("a", 4)],
        ]
    )
    deleted: list[str] = []

    def delete(**given: Any) -> dict[str, Any]:
        deleted.extend(each["ReceiptHandle"] for each in given["Entries"])
        return {}

    sqs = SimpleNamespace(
        receive_message=lambda **_: {"Messages": next(deliveries)},
        delete_message_batch=delete,
    )
    monkeypatch.setattr(dead_letters, "client", lambda *_: sqs)
    queue = DeadLetterQueue(URL, {})
    batches = [queue.receive() for _ in range(3)]
    assert [[each.id for each in batch] for batch in batches] == [["a", "b"], ["c"], []]
    queue.delete(batches[0])
    assert deleted == ["a4", "b2"]
