"""What the commands of a dead-letter queue print, and exit with where SQS does not do what is asked."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from click.testing import CliRunner

from keylane_cli import dlq
from keylane_cli.dead_letters import DeadLetter, QueueFailed, translate_queue_errors
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
