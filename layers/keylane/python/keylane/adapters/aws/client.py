"""Clients of AWS: they wait for a bounded time, don't retry, and raise few kinds of errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
)

from keylane.adapters.aws.settings import AwsSettings
from keylane.errors import QueueUnavailable, Unconfirmed

_SERVER_ERROR = 500
_TRANSIENT = frozenset(
    {
        "KmsThrottled",
        "OverLimit",
        "RequestThrottled",
        "RequestTimeout",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)


class AwsRefused(QueueUnavailable):
    """AWS refused the request: an immediate retry can't succeed. `code` is AWS's."""

    def __init__(self, code: str) -> None:
        super().__init__("the queue refused the request", 10)
        self.code = code


class QueueUnreachable(QueueUnavailable):
    """Nothing answers at the queue's address: nothing was sent."""

    def __init__(self) -> None:
        super().__init__("the queue can't be reached")


def client(service: str, settings: AwsSettings) -> Any:
    """Make a client; its endpoint and credentials come from AWS's usual environment variables."""
    config = Config(
        connect_timeout=1,
        # The caller retries until its deadline: a lost response must leave time for that.
        read_timeout=max(0.5, settings.timeout_ms / 2000),
        retries={"total_max_attempts": 1},
        tcp_keepalive=True,
    )
    return boto3.client(service, region_name=settings.region, config=config)


@contextmanager
def translate_aws_errors() -> Iterator[None]:
    """Raise every error as QueueUnavailable; Unconfirmed if the request may have succeeded.

    AwsRefused and QueueUnreachable say more. The cause holds AWS's own message.
    """
    try:
        yield
    except (EndpointConnectionError, ConnectTimeoutError) as error:
        raise QueueUnreachable from error
    except HTTPClientError as error:
        raise Unconfirmed from error
    except ClientError as error:
        code = error.response["Error"].get("Code", "")
        status = error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
        if code.rpartition(".")[2] in _TRANSIENT:
            raise QueueUnavailable("the queue accepts no more requests for now") from error
        if status >= _SERVER_ERROR:
            raise Unconfirmed from error
        raise AwsRefused(code) from error
    except BotoCoreError as error:
        raise AwsRefused(type(error).__name__) from error
