"""Query parameters that a route does not have: the answer names the one that was most likely meant."""

from collections.abc import Collection, Iterable

from keylane.errors import BadRequest

_CALLED_ELSEWHERE = {
    "count": "limit",
    "encoding": "key_format",
    "format": "key_format",
    "max_records": "limit",
    "next": "cursor",
    "offset": "min_offset",
    "page_size": "limit",
    "page_token": "cursor",
    "size": "limit",
    "start": "from",
    "end": "to",
    "time": "at",
    "timestamp": "at",
}
"""Names of other services' parameters, and what this API calls them."""
_SHOWN_CHARACTERS = 50


def refuse_unknown(given: Iterable[str], known: Collection[str]) -> None:
    """Raise BadRequest for the first parameter of a query that is not known."""
    for name in given:
        if name not in known:
            raise BadRequest(_fault(name, known), name[:_SHOWN_CHARACTERS])


def _fault(name: str, known: Collection[str]) -> str:
    what = f"{name[:_SHOWN_CHARACTERS]!r} is not a parameter of this route"
    if not known:
        return f"{what}: it has no query parameters"
    nearest = _nearest(name, known)
    asked = f"did you mean {nearest}? " if nearest else ""
    return f"{what}; {asked}It has {', '.join(sorted(known))}"


def _nearest(name: str, known: Collection[str]) -> str | None:
    from difflib import get_close_matches  # noqa: PLC0415 (for the few requests with a mistake)

    lower = name[:_SHOWN_CHARACTERS].lower()
    if (elsewhere := _CALLED_ELSEWHERE.get(lower)) in known:
        return elsewhere
    return next(iter(get_close_matches(lower, sorted(known), 1)), None)
