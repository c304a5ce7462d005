"""Dates in the format of HTTP (RFC 9110, 5.6.7)."""

from __future__ import annotations

import time
from functools import lru_cache

LAST_HTTP_DATE_MS = 253_402_300_799_999
"""The end of the year 9999: later times have no such date."""
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def http_date(milliseconds: int) -> str:
    """Return a time as `Tue, 01 Jan 2013 10:00:00 GMT`, whatever the locale."""
    day, seconds = divmod(milliseconds // 1000, 86_400)
    minutes, second = divmod(seconds, 60)
    return f"{_http_day(day)} {minutes // 60:02}:{minutes % 60:02}:{second:02} GMT"


@lru_cache(maxsize=1024)
def _http_day(days: int) -> str:
    """Return the date that many days after 1970 began, as `Tue, 01 Jan 2013`."""
    moment = time.gmtime(days * 86_400)
    return f"{_DAYS[moment.tm_wday]}, {moment.tm_mday:02} {_MONTHS[moment.tm_mon - 1]} {moment.tm_year:04}"
