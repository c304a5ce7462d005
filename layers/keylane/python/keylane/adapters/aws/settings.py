"""What an AWS client needs to know."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AwsSettings:
    """Where queues and buckets are. `timeout_ms` bounds the wait for one answer."""

    region: str
    timeout_ms: int
