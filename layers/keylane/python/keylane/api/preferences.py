"""What a client prefers: the headers `Prefer` and `Accept` (RFC 7240, RFC 9110)."""

from __future__ import annotations

import re

from keylane.api.event import Event, headers_of
from keylane.api.parameters import text
from keylane.errors import BadRequest

_BYTES = "application/octet-stream"
_Q_VALUE = re.compile(r"[01](\.\d{0,3})?")
_WAIT = re.compile(r"\d{1,9}(\.\d{1,9})?")

PREFER = text("Prefer", "wait=SECONDS: how long may be waited", 1000, place="header")
PREFER_ASYNC = text(
    "Prefer", "respond-async: answer once the records are safe, in the write-ahead log", 1000, place="header"
)
ASYNC_APPLIED = {"Preference-Applied": "respond-async"}


def preferred_wait_ms(prefer: str | None) -> float | None:
    """Return the bound on waiting, `wait` of RFC 7240; None without one. Raises BadRequest."""
    if prefer is None:
        return None
    for name, seconds in _preferences(prefer):
        if name == "wait":
            if not _WAIT.fullmatch(seconds):
                raise BadRequest(f"wait is {seconds[:50]!r}, not a number of seconds", "Prefer")
            return float(seconds) * 1000
    return None


def wants_async(event: Event) -> bool:
    """Return whether the client need not wait for the outcome: `Prefer: respond-async` of RFC 7240."""
    prefer = PREFER.of(headers_of(event))
    return prefer is not None and any(name == "respond-async" for name, _ in _preferences(prefer))


def _preferences(prefer: str) -> list[tuple[str, str]]:
    """Return the names, in lower case, and the values of a `Prefer` header."""
    pairs = [preference.partition(";")[0].partition("=") for preference in prefer.split(",")]
    return [(name.strip().lower(), value.strip().strip('"')) for name, _, value in pairs]


def prefers_bytes(accept: str | None) -> bool:
    """Return whether `Accept` gives bytes by name a higher weight than JSON."""
    if not accept or _BYTES not in accept.lower():
        return False
    weights: dict[str, float] = {}
    for media_range in accept.split(","):
        name, *parameters = media_range.split(";")
        weights[name.strip().lower()] = min([1.0, *map(_weight, parameters)])
    return weights.get(_BYTES, 0) > weights.get("application/json", 0)


def _weight(parameter: str) -> float:
    name, _, value = parameter.partition("=")
    # A weight that is not valid is ignored: RFC 9110 lets a server take Accept as a hint.
    return float(value) if name.strip().lower() == "q" and _Q_VALUE.fullmatch(value.strip()) else 1.0
