"""Tokens for Amazon MSK with IAM: requests that are signed with the function's own AWS credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.adapters.kafka.errors import SASL_FAILED
from keylane.errors import BadConfig, ConnectionRejected

if TYPE_CHECKING:
    from collections.abc import Callable


def signer(region: str) -> Callable[[str], tuple[str, float]]:
    """Give librdkafka's `oauth_cb`: it makes a token and tells until when (seconds since 1970) it is good.

    librdkafka asks for the next one when four fifths of that time are over. The first one is made here:
    where that fails, librdkafka would wait for ten seconds. Raises ConnectionRejected then, BadConfig where
    the package is not there.
    """
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 (brings boto3)
    except ImportError as error:
        package = "aws-msk-iam-sasl-signer-python"
        raise BadConfig(f"KEYLANE_KAFKA_SASL_MECHANISM=AWS_MSK_IAM needs the package {package}") from error

    def made() -> tuple[str, float]:
        token, expires_at_ms = MSKAuthTokenProvider.generate_auth_token(region)
        return token, expires_at_ms / 1000

    try:
        first = [made()]
    except Exception as error:
        # The signer raises whatever botocore does, and its own.
        reason = "AWS gave no credentials to sign a token for Kafka with"
        raise ConnectionRejected(SASL_FAILED, reason) from error
    return lambda _: first.pop() if first else made()
