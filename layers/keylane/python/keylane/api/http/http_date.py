"""Dates in the format of HTTP (RFC 9110, 5.6.7)."""

import re
import time
from functools import lru_cache

LAST_HTTP_DATE_MS = 253_402_300_799_999
"""The end of the year 9999: later times have no such date."""
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


_TIME = r"\d\d:\d\d:\d\d"
_FORMATS = (
    rf"[A-Z][a-z]{{2}}, \d\d [A-Z][a-z]{{2}} \d{{4}} {_TIME} GMT"
    rf"|[A-Z][a-z]{{5,8}}, \d\d-[A-Z][a-z]{{2}}-\d\d {_TIME} GMT"
    rf"|[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ \d]\d {_TIME} \d{{4}}"
)
"""Today's format, and the two of former times that must be understood."""


def http_date(milliseconds: int) -> str:
    """Return a time as `Tue, 01 Jan 2013 10:00:00 GMT`, whatever the locale."""
    day, seconds = divmod(milliseconds // 1000, 86_400)
    minutes, second = divmod(seconds, 60)
    return f"{_http_day(day)} {minutes // 60:02}:{minutes % 60:02}:{second:02} GMT"


def parse_http_date(given: str | None) -> int | None:
    """Return a date in ms since 1970; None for none, and for a text that is not one."""
    if given is None or not re.fullmatch(_FORMATS, given.strip()):
        return None
    from datetime import UTC, datetime  # noqa: PLC0415 (few requests have a date, and cold starts are short)
    from email.utils import parsedate  # noqa: PLC0415

    parts = parsedate(given)
    try:
        return round(datetime(*parts[:6], tzinfo=UTC).timestamp() * 1000) if parts else None
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _http_day(days: int) -> str:
    """Return the date that many days after 1970 began, as `Tue, 01 Jan 2013`."""
    moment = time.gmtime(days * 86_400)
    return f"{_DAYS[moment.tm_wday]}, {moment.tm_mday:02} {_MONTHS[moment.tm_mon - 1]} {moment.tm_year:04}"
