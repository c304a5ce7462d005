"""Bearer tokens that are JWTs (RFC 7519): what one says, before anybody believes it.

A token is read by stricter rules than those of the format, because whatever two readers take differently can
be turned against one of them: base64url has one rendering, JSON has no name twice, and nothing in the header
chooses a key but its `kid`, which is compared and never followed. Addresses of keys and keys are ignored.
"""

import binascii
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

from keylane.access.policy import Issuer, is_unicode
from keylane.formats.json_text import finite, no_constant, once

LONGEST_TOKEN = 16 * 1024
"""Characters."""
LONGEST_SUBJECT = 255
"""Characters of `sub`: the bound of OpenID Connect (Core 1.0, 2)."""
LONGEST_KEY_ID = 1_024
_BEARER_JWT = re.compile(r"bearer +([A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*) *", re.IGNORECASE)
_TYPES = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})
"""Others are no tokens of access, such as `logout+jwt` (RFC 8725, 3.11)."""
_LATEST_S = 10**12
_USER_POOL = re.compile(r"https://cognito-idp\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[a-z0-9-]+_[A-Za-z0-9]+")
"""The issuer of a user pool of Amazon Cognito."""
_AUDIENCE_CLAIMS = {"id": "aud", "access": "client_id"}
"""Of a user pool's tokens, by `token_use`: an access token has its app client elsewhere."""


class BadToken(Exception):
    """The token is refused. The text is for whoever sent it: it shows nothing of policy and keys."""


class SignedToken(NamedTuple):
    """A JWT that is well-formed, and not verified. `signed`: what its signature is of."""

    algorithm: str
    key_id: str | None
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


class VerifiedToken(NamedTuple):
    """What an issuer has signed, and until when it counts, in seconds since 1970."""

    claims: Mapping[str, Any]
    expires_s: float


def jwt_in(authorization: str) -> str | None:
    """Return the token of an Authorization header if it has the form of a JWT, of any length."""
    found = _BEARER_JWT.fullmatch(authorization)
    return found[1] if found else None


def parse_token(token: str) -> SignedToken:
    """Return what a token says. Raises BadToken."""
    if len(token) > LONGEST_TOKEN:
        raise BadToken(f"the token has more than {LONGEST_TOKEN:,} characters")
    header_text, claims_text, signature_text = token.split(".")
    header, claims = _object_of(header_text, "header"), _object_of(claims_text, "claims")
    if "crit" in header or "b64" in header:
        raise BadToken("the token's header requires an extension (crit), and none is supported")
    algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str):
        raise BadToken("the token's header has no algorithm")
    if key_id is not None and not (isinstance(key_id, str) and len(key_id) <= LONGEST_KEY_ID):
        raise BadToken("the token's header has a kid that is not a short string")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise BadToken("the token is of another type (typ) than JWT and at+jwt")
    signed = f"{header_text}.{claims_text}".encode()
    return SignedToken(algorithm, key_id, claims, signed, _decode(signature_text, "signature"))


def check_claims(claims: Mapping[str, Any], issuer: Issuer, now_s: float) -> float:
    """Return until when a token of the issuer is accepted, in seconds since 1970. Raises BadToken.

    `exp` and `sub` are required. A token that only the holder of a key may use (`cnf`, RFC 7800) is refused:
    that key isn't asked for here.
    """
    given = _audience_of(claims, issuer)
    if not any(isinstance(each, str) and each in issuer.audience for each in given):
        raise BadToken("the token is for another audience")
    expires_s, valid_from_s = _time_of(claims, "exp"), _time_of(claims, "nbf")
    if expires_s is None:
        raise BadToken("the token has no expiry (exp)")
    if now_s >= expires_s + issuer.leeway_s:
        raise BadToken("the token has expired")
    if valid_from_s is not None and now_s < valid_from_s - issuer.leeway_s:
        raise BadToken("the token is not valid yet")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST_SUBJECT or not is_unicode(subject):
        raise BadToken(f"the token has no subject (sub): a string of 1 to {LONGEST_SUBJECT} characters")
    if "cnf" in claims:
        raise BadToken("the token is bound to a key (cnf), so it is no bearer token")
    return expires_s + issuer.leeway_s


def _audience_of(claims: Mapping[str, Any], issuer: Issuer) -> list[Any]:
    """Return whom a token is for. Raises BadToken for one of a user pool that doesn't say what it is."""
    name = "aud"
    if _USER_POOL.fullmatch(issuer.name):
        use = claims.get("token_use")
        if not isinstance(use, str) or use not in _AUDIENCE_CLAIMS:
            raise BadToken(
                "the token is neither an id token nor an access token of its user pool (token_use)"
            )
        name = _AUDIENCE_CLAIMS[use]
    audience = claims.get(name)
    return audience if isinstance(audience, list) else [audience]


def _object_of(text: str, part: str) -> dict[str, Any]:
    try:
        found = _JSON.decode(_decode(text, part).decode())
    except (ValueError, RecursionError):
        raise BadToken(f"the token's {part} can't be read: it is not JSON, or has a name twice") from None
    if not isinstance(found, dict):
        raise BadToken(f"the token's {part} is not a JSON object")
    return found


def _decode(text: str, part: str) -> bytes:
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error):
        data = b""
    # Spare bits that aren't 0 would be a second rendering of the same token.
    if urlsafe_b64encode(data).rstrip(b"=").decode() != text:
        raise BadToken(f"the token's {part} is not base64url")
    return data


_JSON = json.JSONDecoder(parse_constant=no_constant, parse_float=finite, object_pairs_hook=once)


def _time_of(claims: Mapping[str, Any], name: str) -> float | None:
    if name not in claims:
        return None
    given = claims[name]
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= _LATEST_S:
        raise BadToken(f"the token's {name} is not a time in seconds since 1970")
    return float(given)
