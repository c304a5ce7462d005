"""Settings of the write-ahead log, for the function that fills it and the one that drains it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from keylane.adapters.aws.settings import AwsSettings
from keylane.config.settings import is_set
from keylane.config.table import LOG
from keylane.errors import SettingsError

_URL = "KEYLANE_QUEUE_URL"
_DEFAULT_REGION = "us-east-1"
_IN_HOST = re.compile(r"https?://sqs\.([a-z0-9-]+)\.")


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The queue, the bucket for what no message can hold, and which records go there.

    `groups`: order groups of a topic, in a FIFO queue. `takes_async`, `takes_failed`: as in `WriteAheadLog`.
    """

    url: str
    aws: AwsSettings
    limit_bytes: int
    groups: int
    bucket: str | None
    takes_async: bool
    takes_failed: bool

    @property
    def is_fifo(self) -> bool:
        """Whether the queue keeps order."""
        return self.url.endswith(".fifo")


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """Settings of the drain function, apart from Kafka's. `timeout_ms` bounds one batch.

    `url`: the queue that it drains, None where messages are delivered again after the queue's own time.
    """

    dead_letters_url: str
    aws: AwsSettings
    limit_bytes: int
    bucket: str | None
    timeout_ms: int
    url: str | None = None


def queue_settings(environment: Mapping[str, str], timeout_ms: int) -> QueueSettings | None:
    """Return the settings of the write-ahead log, None without one. Raises SettingsError.

    `timeout_ms` bounds one request.
    """
    mode = LOG.read(environment, "KEYLANE_ASYNC")
    takes_failed = LOG.read(environment, "KEYLANE_QUEUE_ON_FAILURE")
    if not is_set(environment, _URL):
        if mode == "queue" or takes_failed:
            variable = "KEYLANE_ASYNC" if mode == "queue" else "KEYLANE_QUEUE_ON_FAILURE"
            raise SettingsError(variable, f"needs a queue, and {_URL} is not set")
        return None
    return QueueSettings(
        url=LOG.read(environment, _URL),
        aws=aws_settings(environment, timeout_ms),
        limit_bytes=LOG.read(environment, "KEYLANE_QUEUE_LIMIT_BYTES"),
        groups=LOG.read(environment, "KEYLANE_QUEUE_GROUPS"),
        bucket=LOG.read(environment, "KEYLANE_QUEUE_BUCKET"),
        takes_async=mode != "deliver",
        takes_failed=takes_failed,
    )


def drain_settings(environment: Mapping[str, str]) -> DrainSettings:
    """Return the settings of the drain function. Raises SettingsError."""
    timeout_ms = LOG.read(environment, "KEYLANE_DRAIN_TIMEOUT_MS")
    return DrainSettings(
        dead_letters_url=LOG.read(environment, "KEYLANE_DLQ_URL"),
        aws=aws_settings(environment, min(timeout_ms, 5_000)),
        limit_bytes=LOG.read(environment, "KEYLANE_QUEUE_LIMIT_BYTES"),
        bucket=LOG.read(environment, "KEYLANE_QUEUE_BUCKET"),
        timeout_ms=timeout_ms,
        url=LOG.read(environment, _URL),
    )


def aws_settings(environment: Mapping[str, str], timeout_ms: int) -> AwsSettings:
    """Return the region: that of AWS_REGION, else that of a queue's URL."""
    in_host = _IN_HOST.match(environment.get(_URL, "") or environment.get("KEYLANE_DLQ_URL", ""))
    region = environment.get("AWS_REGION") or (in_host[1] if in_host else _DEFAULT_REGION)
    return AwsSettings(region, timeout_ms)
