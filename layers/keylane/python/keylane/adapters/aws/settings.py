"""What an AWS client needs to know."""

from __future__ import annotations

import re
from dataclasses import dataclass

BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class AwsSettings:
    """Where queues and buckets are. `timeout_ms` bounds the wait for one answer."""

    region: str
    timeout_ms: int
