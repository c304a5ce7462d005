"""Tokens for Amazon MSK with IAM: requests signed with the function's own AWS credentials."""

from keylane.adapters.kafka.errors import SASL_FAILED
from keylane.errors import BadConfig, ConnectionRejected


class TokenSigner:
    """librdkafka's `oauth_cb`: returns a token and when it expires (seconds since 1970).

    librdkafka asks for the next token after four fifths of that time. The first one is made here: if that
    failed in the callback, librdkafka would wait for ten seconds.
    """

    def __init__(self, region: str) -> None:
        """Raises ConnectionRejected if no token can be made, BadConfig without the package."""
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 (brings boto3)
        except ImportError as error:
            package = "aws-msk-iam-sasl-signer-python"
            raise BadConfig(
                f"KEYLANE_KAFKA_SASL_MECHANISM=AWS_MSK_IAM requires the package {package}"
            ) from error
        self._provider = MSKAuthTokenProvider
        self._region = region
        try:
            self._first: tuple[str, float] | None = self._sign()
        except Exception as error:
            # The signer raises its own errors, and all of botocore's.
            reason = "AWS gave no credentials to sign a token for Kafka with"
            raise ConnectionRejected(SASL_FAILED, reason) from error

    def __call__(self, _: str) -> tuple[str, float]:
        """Return the first token, or make a new one."""
        token, self._first = self._first, None
        return token or self._sign()

    def _sign(self) -> tuple[str, float]:
        token, expires_at_ms = self._provider.generate_auth_token(self._region)
        return token, expires_at_ms / 1000
