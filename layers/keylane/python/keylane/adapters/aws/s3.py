"""The port `Bucket` over S3. Nothing is deleted here: the bucket's lifecycle rule deletes old objects.

A message may be delivered again after it was drained, or replayed from the dead-letter queue: its object must
live as long as that can happen.
"""

from typing import Any

from keylane.adapters.aws.client import AwsRefused, client, translate_aws_errors
from keylane.adapters.aws.settings import AwsSettings
from keylane.errors import QueueUnavailable
from keylane.ports import Deadline

_ABSENT = frozenset({"NoSuchKey", "404"})
_PAUSE_S = 0.1


class S3Bucket:
    """One bucket; transient errors are retried until the deadline."""

    def __init__(self, name: str, settings: AwsSettings) -> None:
        self._name = name
        self._settings = settings
        self._client: Any = None

    def put(self, name: str, data: bytes, deadline: Deadline) -> None:
        """See `ports.Bucket`."""
        self._call(deadline, "put_object", Key=name, Body=data)

    def get(self, name: str, deadline: Deadline) -> bytes | None:
        """See `ports.Bucket`."""
        try:
            return self._call(deadline, "get_object", Key=name)
        except AwsRefused as error:
            if error.code in _ABSENT:
                return None
            raise

    def close(self) -> None:
        """Close its connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _call(self, deadline: Deadline, operation: str, **arguments: Any) -> bytes:
        """Call an operation of S3; return the body of its response, b"" without one."""
        if self._client is None:
            self._client = client("s3", self._settings)
        while True:
            try:
                with translate_aws_errors():
                    response = getattr(self._client, operation)(Bucket=self._name, **arguments)
                    body: bytes = response["Body"].read() if "Body" in response else b""
                    return body
            except AwsRefused:
                raise
            except QueueUnavailable:
                if not deadline.remaining_s:
                    raise
                deadline.clock.pause_s(min(_PAUSE_S, deadline.remaining_s))
