"""Claims that API Gateway has verified with a user pool of Cognito, as its events show them.

A REST API shows every claim as text: true as "true", 7 as "7", and the list of a and b as "a,b", like the
text "a,b" itself. So a claim has the type that it has in the token, and counts if the event shows it the
same: the event says what is true, the token how to read it. Whatever is not sure to be the same is missing.

    string              as it is
    true, 7             true, 7
    ["a", "b"]          a,b     (HTTP APIs: [a b])
    exp, iat, nbf, cnf  the token's, however they are shown: all they do is to refuse it
    objects, floats     missing
"""

from collections.abc import Mapping
from typing import Any

_REFUSING = frozenset({"exp", "iat", "nbf", "cnf"})


def confirmed(claims: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims of a token that an event shows, in the token's types."""
    return {
        name: value
        for name, value in claims.items()
        if name in _REFUSING or (name in shown and shown[name] in _renderings(value))
    }


def _renderings(value: object) -> tuple[str, ...]:
    """Return the texts that an event may have for a claim, none for one of an unknown form."""
    if isinstance(value, bool):
        return ("true",) if value else ("false",)
    if isinstance(value, str | int):
        return (str(value),)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value), f"[{' '.join(value)}]"
    return ()
