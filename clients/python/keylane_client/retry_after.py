"""The header `Retry-After` (RFC 9110, 10.2.3): seconds, or a date."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime


def parse_retry_after_s(header: str | None) -> float | None:
    """Return the seconds to wait; None without a header, or for one that is neither a number nor a date."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
