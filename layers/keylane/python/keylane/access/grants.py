"""What a token may read and write, and what a request needs. functions/authorizer decides by it.

KEYLANE_ACCESS, a JSON object, or a reference to one (adapters/aws/references.py):

    {"<SHA-256 of a token, hexadecimal>": {"name": "billing", "read": ["orders*"], "write": ["invoices"],
                                           "views": ["revenue"]}}

`*` stands for any characters in the name of a topic or view; `name` identifies the token in rate limits and
logs. `/push` has its topics in its body, which no authorizer sees: it needs `"write": ["*"]`. Lists of all
topics and of brokers need `"read": ["*"]`, `/health` any token.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from keylane.model.patterns import fits
from keylane.model.routes import Names, PermissionKind, Target

ALL = "*"
LEAST_CHARACTERS = 16
"""Of a token: a shorter one could be guessed from the hash, which is in settings and logs of deployments."""
_BEARER = re.compile(rf"bearer +([\x21-\x7e]{{{LEAST_CHARACTERS},4096}}) *", re.IGNORECASE)
_SCHEME = re.compile(r"bearer +(\S+) *", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Grant:
    """Patterns of the topics that a token may read and write, and of the views that it may read."""

    name: str
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    views: tuple[str, ...] = ()

    def allows(self, need: "Need") -> bool:
        """Return whether all names of the need are granted; a need of all names, only by the pattern `*`."""
        patterns: tuple[str, ...] = getattr(self, need.kind.value)
        if need.names is None:
            return ALL in patterns
        return all(any(fits(pattern, name) for pattern in patterns) for name in need.names)


@dataclass(frozen=True, slots=True)
class Need:
    """A permission that a request needs. `names`: topics or views; () if any token suffices, None for all."""

    kind: PermissionKind
    names: tuple[str, ...] | None


def need_of(target: Target, query: Mapping[str, Sequence[str]]) -> Need | None:
    """Return the permission that a request needs, None if it leads to no route.

    `query`: all values of each parameter, so that none hides behind another of the same name.
    """
    if target.route is None or not all(target.parts):
        return None
    kind, place = target.route.permission
    names = target.names(query)
    return Need(kind, tuple(map(unquote, names)) if names and place is Names.PATH else names)


def grant_of(grants: Mapping[str, Grant], authorization: str) -> Grant | None:
    """Return the grant of the token in an Authorization header, None without a known token."""
    bearer = _BEARER.fullmatch(authorization)
    return grants.get(hashlib.sha256(bearer[1].encode()).hexdigest()) if bearer else None


def why_unknown(authorization: str) -> str:
    """Return what is wrong with an Authorization header that names no known token: nothing about grants."""
    if not authorization.strip():
        return "the request has no token: send it as `Authorization: Bearer TOKEN`"
    given = _SCHEME.fullmatch(authorization)
    if given is None:
        return "the Authorization header is not `Bearer TOKEN`"
    if len(given[1]) < LEAST_CHARACTERS:
        return f"a token has at least {LEAST_CHARACTERS} characters"
    return "the token is not known"


def short_token_of(grants: Mapping[str, Grant], authorization: str) -> str | None:
    """Return the name of the grant whose token is refused because it is too short; None: there is none."""
    given = _SCHEME.fullmatch(authorization)
    if given is None or len(given[1]) >= LEAST_CHARACTERS:
        return None
    grant = grants.get(hashlib.sha256(given[1].encode()).hexdigest())
    return grant.name if grant else None
