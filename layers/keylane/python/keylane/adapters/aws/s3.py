"""The port `Bucket` over S3. Nothing is deleted here: the bucket's life-cycle rule does that.

A message may come again after it was drained, or be replayed from the dead-letter queue: its object must be
there as long as that can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keylane.adapters.aws.client import Refused, client, translate_aws_errors
from keylane.errors import QueueUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.adapters.aws.settings import AwsSettings
    from keylane.ports import Deadline

_ABSENT = frozenset({"NoSuchKey", "404"})
_PAUSE_S = 0.1


class S3Bucket:
    """One bucket; what passes is tried again until the deadline."""

    def __init__(self, name: str, settings: AwsSettings) -> None:
        self._name = name
        self._settings = settings
        self._client: Any = None

    def put(self, name: str, data: bytes, deadline: Deadline) -> None:
        """As `Bucket.put` has it."""
        self._asked(deadline, lambda s3: s3.put_object(Bucket=self._name, Key=name, Body=data))

    def get(self, name: str, deadline: Deadline) -> bytes | None:
        """As `Bucket.get` has it."""
        try:
            data: bytes = self._asked(
                deadline, lambda s3: s3.get_object(Bucket=self._name, Key=name)["Body"].read()
            )
        except Refused as error:
            if error.code in _ABSENT:
                return None
            raise
        return data

    def close(self) -> None:
        """Close its connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _asked(self, deadline: Deadline, request: Callable[[Any], Any]) -> Any:
        if self._client is None:
            self._client = client("s3", self._settings)
        while True:
            try:
                with translate_aws_errors():
                    return request(self._client)
            except Refused:
                raise
            except QueueUnavailable:
                if not deadline.remaining_s:
                    raise
                deadline.clock.pause_s(min(_PAUSE_S, deadline.remaining_s))
