"""What all Kafka clients share: their creation, and how they notice that a broker rejects them.

librdkafka keeps retrying with rejected credentials and reports them to its `error_cb` alone: to a caller it
looks like a broker that does not answer.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from keylane.adapters.kafka import options
from keylane.adapters.kafka.errors import LOCAL_TIMED_OUT, LOCAL_TRANSPORT, rejection, rejection_code
from keylane.adapters.kafka.options import Security
from keylane.errors import BadConfig, ConnectionRejected, KeylaneError
from keylane.ports import Deadline

Client = TypeVar("Client")
Found = TypeVar("Found")
Settings = TypeVar("Settings")

_LATE = {LOCAL_TIMED_OUT, LOCAL_TRANSPORT}
_FIRST_SLICE_S = 0.25
_LOOK_S = 0.05
_VARYING = re.compile(r"\[rdkafka#[^\]]*\]|\(after .*\)")
"""Of a line of librdkafka: which client it is of, how long it took and how often it came."""
_REPEATED_S, _MOST_LINES = 60.0, 1_000
_log = logging.getLogger("keylane.kafka")


class RejectionListener:
    """The `error_cb` of a client: notes whether a broker has rejected the client, and logs it.

    `refusal`: the first error that reports a rejection, None before.
    """

    def __init__(self, security: Security) -> None:
        self._security = security
        self.refusal: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Take an error of the client, as its `error_cb`."""
        code = rejection_code(error)
        if self.refusal is None and code:
            self.refusal = error
            _log.error("%s: %s", code, self._security.masked(error.str()))

    def error(self, *, uncertain: bool = False) -> ConnectionRejected | None:
        """Return the rejection as an error, None without one; the error's cause has librdkafka's message."""
        return None if self.refusal is None else rejection(self.refusal, uncertain=uncertain)

    def check(self) -> None:
        """Raise ConnectionRejected if a broker has rejected the client."""
        error = self.error()
        if error is not None:
            raise error


class RareRepeats(logging.Filter):
    """Lets a line of librdkafka through once a minute: it says each few seconds that a broker is away."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is shown; how long and how often something failed makes no other line."""
        text, now_s = _VARYING.sub("", record.getMessage()), self._now_s()
        if now_s - self._said.get(text, -_REPEATED_S) < _REPEATED_S:
            return False
        if len(self._said) >= _MOST_LINES:
            self._said.clear()
        self._said[text] = now_s
        return True


_client_log = logging.getLogger("keylane.kafka.client")
_client_log.addFilter(RareRepeats())


def make_client(
    client: Callable[..., Client],
    configuration: Mapping[str, Any],
    security: Security,
    listener: RejectionListener,
) -> Client:
    """Make a client. Raises BadConfig, which shows no secret, if librdkafka rejects the settings."""
    complete = {**configuration, **credentials(security), "error_cb": listener}
    try:
        return client(complete, logger=_client_log)
    except (KafkaException, TypeError, ValueError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        # Neither the error nor its cause is shown: they may contain the value of any option.
        raise BadConfig(f"Kafka's client rejects its settings: {security.masked(reason)}") from None


def credentials(security: Security) -> dict[str, Any]:
    """The options of librdkafka for security, with the signer of tokens for AWS_MSK_IAM."""
    found = security.configuration()
    if security.mechanism == options.AWS_MSK_IAM:
        from keylane.adapters.kafka.tokens import TokenSigner  # noqa: PLC0415 (brings boto3)

        found["oauth_cb"] = TokenSigner(security.region)
    return found


def reload_settings(reload: Callable[[], Settings], settings: Settings) -> Settings:
    """Reload the settings; the given ones stay in use if that fails."""
    try:
        return reload()
    except KeylaneError as error:
        _log.error("the settings can't be reloaded: %s", error)
        return settings


def fetch_metadata(client: Any, topic: str | None, deadline: Deadline, listener: RejectionListener) -> Any:
    """Call `list_topics`. Raises KafkaException, or ConnectionRejected once a broker rejects the client."""
    slice_s = _FIRST_SLICE_S
    while True:
        try:
            return client.list_topics(topic, timeout=min(slice_s, deadline.remaining_s))
        except KafkaException as error:
            client.poll(0)
            listener.check()
            if error.args[0].code() not in _LATE or not deadline.remaining_s:
                raise
        slice_s *= 2


def wait_for_result(
    client: Any, future: Future[Found], timeout_s: float, listener: RejectionListener
) -> Found:
    """Wait for a response. Raises as the future, or ConnectionRejected once a broker rejects the client."""
    end_s = time.monotonic() + timeout_s
    while True:
        left_s = end_s - time.monotonic()
        try:
            return future.result(max(0.0, min(_LOOK_S, left_s)))
        except TimeoutError:
            client.poll(0)
            listener.check()
            if left_s <= 0:
                raise
        except KafkaException:
            client.poll(0)
            listener.check()
            raise
