"""Clients of AWS: bounded waits, no retries of their own, errors in few kinds."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
)

from keylane.errors import QueueUnavailable, Unconfirmed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane.adapters.aws.settings import AwsSettings

_SERVER_ERROR = 500
_PASSING = frozenset(
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


class Refused(QueueUnavailable):
    """AWS refused the request as it is: it makes no sense to try again at once. `code` is AWS' own."""

    def __init__(self, code: str) -> None:
        super().__init__("the queue refused the request", 10)
        self.code = code


def client(service: str, settings: AwsSettings) -> Any:
    """A client; where and as whom it speaks is told by the usual variables of AWS."""
    config = Config(
        connect_timeout=1,
        # The caller tries again until its deadline: one answer that is lost must leave time for that.
        read_timeout=max(0.5, settings.timeout_ms / 2000),
        retries={"total_max_attempts": 1},
        tcp_keepalive=True,
    )
    return boto3.client(service, region_name=settings.region, config=config)


@contextmanager
def translate_aws_errors() -> Iterator[None]:
    """Every error becomes QueueUnavailable: Refused, or Unconfirmed where it may have been done all the same.

    The cause has AWS' words.
    """
    try:
        yield
    except (EndpointConnectionError, ConnectTimeoutError) as error:
        raise QueueUnavailable("the queue can't be reached") from error
    except HTTPClientError as error:
        raise Unconfirmed from error
    except ClientError as error:
        code = error.response["Error"].get("Code", "")
        status = error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
        if code.rpartition(".")[2] in _PASSING:
            raise QueueUnavailable("the queue takes no more for the moment") from error
        if status >= _SERVER_ERROR:
            raise Unconfirmed from error
        raise Refused(code) from error
    except BotoCoreError as error:
        raise Refused(type(error).__name__) from error
