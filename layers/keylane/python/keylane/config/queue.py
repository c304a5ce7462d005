"""Settings of the write-ahead log, for the function that fills it and the one that drains it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane.config.env import number, switch
from keylane.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping
from keylane.adapters.aws.settings import BUCKET_NAME, AwsSettings

URL = "KEYLANE_QUEUE_URL"


LEAST_LIMIT, SAFE_LIMIT, MOST_LIMIT = 4_096, 262_144, 1_048_576
"""Bytes of a message, and of a batch of them. SQS takes 1 MiB since August 2025, stand-ins often less."""


GROUPS, MOST_GROUPS = 16, 10_000


_ANYWHERE = "us-east-1"


_IN_HOST = re.compile(r"https?://sqs\.([a-z0-9-]+)\.")


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The log: its queue, the bucket for what no message can hold, and which records go there.

    `groups`: order groups of a topic, in a FIFO queue. `takes_async`, `takes_failed`: as in `WriteAheadLog`.
    """

    url: str
    aws: AwsSettings
    limit_bytes: int = SAFE_LIMIT
    groups: int = GROUPS
    bucket: str | None = None
    takes_async: bool = True
    takes_failed: bool = False

    @property
    def is_fifo(self) -> bool:
        """Whether the queue keeps order."""
        return self.url.endswith(".fifo")


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """What the drain function has beside Kafka. `timeout_ms` bounds one batch."""

    dead_letters_url: str
    aws: AwsSettings
    limit_bytes: int
    bucket: str | None
    timeout_ms: int


def queue_settings(environment: Mapping[str, str], timeout_ms: int) -> QueueSettings | None:
    """KEYLANE_QUEUE_URL, _GROUPS, _LIMIT_BYTES, _BUCKET, _ON_FAILURE and KEYLANE_ASYNC; None without a log.

    `timeout_ms` bounds one request. Raises SettingsError.
    """
    mode = environment.get("KEYLANE_ASYNC", "").strip()
    if mode not in {"", "queue", "deliver"}:
        raise SettingsError("KEYLANE_ASYNC", f"is {mode!r}, neither queue nor deliver")
    takes_failed = switch(environment, "KEYLANE_QUEUE_ON_FAILURE")
    if not environment.get(URL, "").strip():
        if mode == "queue" or takes_failed:
            variable = "KEYLANE_ASYNC" if mode == "queue" else "KEYLANE_QUEUE_ON_FAILURE"
            raise SettingsError(variable, f"wants a queue, and {URL} is not set")
        return None
    return QueueSettings(
        url=_url(environment, URL),
        aws=aws_settings(environment, timeout_ms),
        limit_bytes=_limit(environment),
        groups=number(environment, "KEYLANE_QUEUE_GROUPS", GROUPS, most=MOST_GROUPS),
        bucket=_bucket(environment),
        takes_async=mode != "deliver",
        takes_failed=takes_failed,
    )


def drain_settings(environment: Mapping[str, str]) -> DrainSettings:
    """KEYLANE_DLQ_URL, KEYLANE_QUEUE_LIMIT_BYTES, _BUCKET, KEYLANE_DRAIN_TIMEOUT_MS. Raises SettingsError."""
    timeout_ms = number(environment, "KEYLANE_DRAIN_TIMEOUT_MS", 20_000, most=840_000)
    return DrainSettings(
        dead_letters_url=_url(environment, "KEYLANE_DLQ_URL"),
        aws=aws_settings(environment, min(timeout_ms, 5_000)),
        limit_bytes=_limit(environment),
        bucket=_bucket(environment),
        timeout_ms=timeout_ms,
    )


def _url(environment: Mapping[str, str], variable: str) -> str:
    url = environment.get(variable, "").strip()
    if not url:
        raise SettingsError(variable, "is not set: it is the URL of an SQS queue")
    if not re.fullmatch(r"https?://[^/@?#\s]+(/[^/@?#\s]+)+", url):
        # It isn't shown: one with a password in it is a likely mistake.
        raise SettingsError(variable, "is no http or https URL of host and path alone")
    return url


def aws_settings(environment: Mapping[str, str], timeout_ms: int) -> AwsSettings:
    """Where AWS is: AWS_REGION's, or that of a queue's URL."""
    in_host = _IN_HOST.match(environment.get(URL, "") or environment.get("KEYLANE_DLQ_URL", ""))
    region = environment.get("AWS_REGION") or (in_host[1] if in_host else _ANYWHERE)
    return AwsSettings(region, timeout_ms)


def _limit(environment: Mapping[str, str]) -> int:
    return number(environment, "KEYLANE_QUEUE_LIMIT_BYTES", SAFE_LIMIT, LEAST_LIMIT, MOST_LIMIT)


def _bucket(environment: Mapping[str, str]) -> str | None:
    name = environment.get("KEYLANE_QUEUE_BUCKET", "").strip()
    if name and not BUCKET_NAME.fullmatch(name):
        raise SettingsError("KEYLANE_QUEUE_BUCKET", f"is {name[:100]!r}, which is no bucket's name")
    return name or None
