"""What all Kafka clients share: their creation, and how they notice that a broker rejects them.

librdkafka keeps retrying with rejected credentials and reports them to its `error_cb` alone: to a caller it
looks like a broker that does not answer.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaException

from keylane.adapters.kafka import options
from keylane.adapters.kafka.errors import LOCAL_TIMED_OUT, LOCAL_TRANSPORT, rejection, rejection_code
from keylane.errors import BadConfig, KeylaneError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from confluent_kafka import KafkaError

    from keylane.adapters.kafka.options import Security
    from keylane.errors import ConnectionRejected
    from keylane.ports import Deadline

Client = TypeVar("Client")
Found = TypeVar("Found")
Settings = TypeVar("Settings")

_LATE = {LOCAL_TIMED_OUT, LOCAL_TRANSPORT}
_FIRST_SLICE_S = 0.25
_LOOK_S = 0.05
_log = logging.getLogger("keylane.kafka")


class RejectionListener:
    """A client's `error_cb`: whether a broker has rejected it. `refusal` is the first error that says so."""

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
        """The rejection as an error, None without one; its cause keeps librdkafka's words."""
        return None if self.refusal is None else rejection(self.refusal, uncertain=uncertain)

    def check(self) -> None:
        """Raise ConnectionRejected if a broker has rejected the client."""
        error = self.error()
        if error is not None:
            raise error


def make(
    client: Callable[..., Client],
    configuration: Mapping[str, Any],
    security: Security,
    entrance: RejectionListener,
) -> Client:
    """Make a client. Raises BadConfig, without any secret in it, where librdkafka refuses the settings."""
    whole = {**configuration, **credentials(security), "error_cb": entrance}
    try:
        return client(whole, logger=logging.getLogger("keylane.kafka"))
    except (KafkaException, TypeError, ValueError) as error:
        told = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        # Neither the error nor its cause goes on: they may show the value of any option.
        raise BadConfig(f"Kafka's client refuses its settings: {security.masked(told)}") from None


def credentials(security: Security) -> dict[str, Any]:
    """Security as librdkafka takes it, with the maker of tokens where those are asked for."""
    found = security.configuration()
    if security.mechanism == options.AWS_MSK_IAM:
        from keylane.adapters.kafka.tokens import signer  # noqa: PLC0415 (brings boto3)

        found["oauth_cb"] = signer(security.region)
    return found


def renewal(renewed: Callable[[], Settings], settings: Settings) -> Settings:
    """The settings as they are now, or those that are given where they can't be read."""
    try:
        return renewed()
    except KeylaneError as error:
        _log.error("the settings can't be read anew: %s", error)
        return settings


def metadata(client: Any, topic: str | None, deadline: Deadline, entrance: RejectionListener) -> Any:
    """`list_topics`, until a broker refuses the client. Raises KafkaException, ConnectionRejected."""
    slice_s = _FIRST_SLICE_S
    while True:
        try:
            return client.list_topics(topic, timeout=min(slice_s, deadline.remaining_s))
        except KafkaException as error:
            client.poll(0)
            entrance.check()
            if error.args[0].code() not in _LATE or not deadline.remaining_s:
                raise
        slice_s *= 2


def result(client: Any, future: Future[Found], timeout_s: float, entrance: RejectionListener) -> Found:
    """A request's answer, until a broker refuses the client. Raises as the future, ConnectionRejected."""
    end_s = time.monotonic() + timeout_s
    while True:
        left_s = end_s - time.monotonic()
        try:
            return future.result(max(0.0, min(_LOOK_S, left_s)))
        except TimeoutError:
            client.poll(0)
            entrance.check()
            if left_s <= 0:
                raise
        except KafkaException:
            client.poll(0)
            entrance.check()
            raise
