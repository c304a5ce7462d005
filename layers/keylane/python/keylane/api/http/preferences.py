"""What a client prefers: the headers `Prefer` and `Accept` (RFC 7240, RFC 9110)."""

from __future__ import annotations

import re
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from keylane.api.http.parameters import HEADER, text
from keylane.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from keylane.api.http.request import Request
    from keylane.config.functions import QuerySettings

_ANY, _BYTES, _JSON = "*/*", "application/octet-stream", "application/json"
LONGEST_ACCEPT = 2_048
_NO_WEIGHTS: Mapping[str, float] = MappingProxyType({})
_Q_VALUE = re.compile(r"[01](\.\d{0,3})?")
_WAIT = re.compile(r"\d{1,9}(\.\d{1,9})?")

PREFER = text("Prefer", "wait=SECONDS: how long may be waited", 1000, place=HEADER)
PREFER_ASYNC = text(
    "Prefer", "respond-async: answer once the records are safe, in the write-ahead log", 1000, place=HEADER
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


def bounded_wait_ms(request: Request, preferred_ms: float | None, settings: QuerySettings) -> float:
    """Return how long a read may wait: what the client prefers, within the server's bounds."""
    wait_ms = settings.wait_default_ms if preferred_ms is None else min(preferred_ms, settings.wait_max_ms)
    if request.deadline is None:
        return wait_ms
    return min(wait_ms, request.deadline.remaining_s * 1000)


def wants_async(request: Request) -> bool:
    """Return whether the client need not wait for the outcome: `Prefer: respond-async` of RFC 7240."""
    prefer = PREFER.of(request)
    return prefer is not None and any(name == "respond-async" for name, _ in _preferences(prefer))


def _preferences(prefer: str) -> list[tuple[str, str]]:
    """Return the names, in lower case, and the values of a `Prefer` header."""
    pairs = [preference.partition(";")[0].partition("=") for preference in prefer.split(",")]
    return [(name.strip().lower(), value.strip().strip('"')) for name, _, value in pairs]


def prefers_bytes(accept: str | None) -> bool:
    """Return whether `Accept` gives bytes by name a higher weight than JSON."""
    if not accept or len(accept) > LONGEST_ACCEPT or _BYTES not in accept.lower():
        return False
    weights = weights_of(accept)
    return weights.get(_BYTES, 0) > weights.get(_JSON, 0)


def accepts(accept: str | None, media_type: str) -> bool:
    """Return whether `Accept` fits a media type: the most specific of its ranges counts (12.5.1).

    Without a range that is one, it fits all.
    """
    if not accept or accept == _ANY:
        return True
    weights = weights_of(accept)
    media_type = media_type.partition(";")[0]
    ranges = (media_type, f"{media_type.partition('/')[0]}/*", _ANY)
    found = next((weights[each] for each in ranges if each in weights), None)
    return not weights if found is None else found > 0


def accepts_document(accept: str | None) -> bool:
    """Return whether `Accept` fits a JSON document, by any of JSON's types.

    Bytes fit too: they ask for a document with values that are not decoded.
    """
    if accepts(accept, _JSON) or accepts(accept, _BYTES):
        return True
    return any(name.endswith("+json") and weight > 0 for name, weight in weights_of(accept or "").items())


def weights_of(accept: str) -> Mapping[str, float]:
    """Return the weight of each media range of an `Accept` header, by its name in lower case.

    One that is too long is ignored: RFC 9110 lets a server take Accept as a hint.
    """
    return _weights_of(accept) if len(accept) <= LONGEST_ACCEPT else _NO_WEIGHTS


@lru_cache(maxsize=128)
def _weights_of(accept: str) -> dict[str, float]:
    return {name: weight for name, weight in _weighted(accept) if "/" in name}


def preferred_coding(accept_encoding: str | None, codings: Sequence[str]) -> str | None:
    """Return the content coding that `Accept-Encoding` prefers, of equals the first; None for none."""
    if not accept_encoding or len(accept_encoding) > LONGEST_ACCEPT:
        return None
    weights = dict(_weighted(accept_encoding))
    every = weights.get("*", 0.0)
    best = max(codings, key=lambda coding: weights.get(coding, every))
    return best if weights.get(best, every) > 0 else None


def _weighted(header: str) -> Iterator[tuple[str, float]]:
    """Yield the names of a list with weights (RFC 9110, 12.4.2), in lower case."""
    for each in header.split(","):
        name, *parameters = each.split(";")
        yield name.strip().lower(), min([1.0, *map(_weight, parameters)])


def _weight(parameter: str) -> float:
    name, _, value = parameter.partition("=")
    # A weight that is not valid is ignored: RFC 9110 lets a server take Accept as a hint.
    return float(value) if name.strip().lower() == "q" and _Q_VALUE.fullmatch(value.strip()) else 1.0
