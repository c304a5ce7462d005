"""What the makers of all Kafka clients share: a configuration that is refused, and a broker that refuses us.

librdkafka goes on trying with credentials that were refused, and tells its `error_cb` alone: to a caller it
looks like a broker that does not answer.
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from keylane.adapters.kafka import options
from keylane.errors import BadConfig, ConnectionRejected, KeylaneError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from keylane.adapters.kafka.options import Security
    from keylane.ports import Deadline

Client = TypeVar("Client")
Found = TypeVar("Found")
Settings = TypeVar("Settings")

# librdkafka's own codes are negative, and their names begin with an underscore without being private.
CODES = {
    KafkaError._AUTHENTICATION: "SASL_AUTHENTICATION_FAILED",  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED: "SASL_AUTHENTICATION_FAILED",
    KafkaError._SSL: "SSL_HANDSHAKE_FAILED",  # noqa: SLF001
}
"""librdkafka's code -> ours. Kafka itself has no name for a handshake that fails: no broker answered."""

_TRANSPORT = KafkaError._TRANSPORT  # noqa: SLF001
_LATE = {KafkaError._TIMED_OUT, _TRANSPORT}  # noqa: SLF001
_ALERT = re.compile(r"SSL routines::.*\balert\b")
_FIRST_SLICE_S = 0.25
_LOOK_S = 0.05
_log = logging.getLogger("keylane.kafka")


class RejectionListener:
    """Whether brokers let one client in: its `error_cb`. `refusal` is the first error that says no."""

    def __init__(self, security: Security) -> None:
        self._security = security
        self.refusal: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Hear an error of the client."""
        if self.refusal is None and _code(error):
            self.refusal = error
            _log.error("%s: %s", _code(error), self._security.masked(error.str()))

    def error(self, *, uncertain: bool = False) -> ConnectionRejected | None:
        """The refusal as ours; its cause keeps librdkafka's words."""
        return None if self.refusal is None else not_let_in(self.refusal, uncertain=uncertain)

    def check(self) -> None:
        """Raise ConnectionRejected where a broker refused."""
        error = self.error()
        if error is not None:
            raise error


def not_let_in(error: KafkaError, *, uncertain: bool = False) -> ConnectionRejected:
    """Say it as ours."""
    found = ConnectionRejected(_code(error) or "", uncertain=uncertain)
    found.__cause__ = KafkaException(error)
    return found


def _code(error: KafkaError) -> str | None:
    """Our name of a refusal, None for other errors."""
    if error.code() == _TRANSPORT and _ALERT.search(error.str()):
        # A broker that does not take our certificate says so when the handshake is over for us.
        return "SSL_HANDSHAKE_FAILED"
    return CODES.get(error.code())


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
