"""OpenID Connect for a program on somebody's machine: authorization code with PKCE (RFC 7636), no secret.

    1. `find_provider` reads the issuer's configuration, unless its endpoints are known.
    2. `LoginAttempt` makes the address for the browser, and takes the issuer's answer.
    3. `redeem` and `renew` ask for tokens.

The issuer sends tokens to this program itself, over TLS, so an id token's claims are compared, and its
signature is not (OpenID Connect Core 1.0, 3.1.3.7). The API verifies the token that it gets.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import httpx

from keylane_client.cli.errors import CommandFailed

TIMEOUT_S = 20.0
ACCESS, ID = "access", "id"
DEFAULT_LIFE_S = 3600
"""Of an access token whose life the issuer does not say."""
LONGEST_LIFE_S = 10 * 365 * 86_400
_ENDPOINTS = ("authorization_endpoint", "token_endpoint")


class LoginFailed(CommandFailed):
    """The issuer gave no token."""


class Provider(NamedTuple):
    """An issuer and our client there. `token`: ACCESS or ID, which token the API takes."""

    issuer: str
    client_id: str
    authorization_endpoint: str
    token_endpoint: str
    scope: str = "openid"
    token: str = ACCESS


class Tokens(NamedTuple):
    """What an issuer gave. `expires_s`: seconds since 1970. `refresh_token`: empty if there is none."""

    token: str
    expires_s: float
    subject: str
    refresh_token: str = ""


def find_provider(given: dict[str, Any]) -> Provider:
    """Return the provider. `given`: issuer, client_id, perhaps more of its fields. Raises LoginFailed."""
    known = {name: each for name, each in given.items() if name in Provider._fields and each}
    issuer = str(known["issuer"])
    if not all(known.get(name) for name in _ENDPOINTS):
        found = _ask("GET", f"{_checked(issuer).rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise LoginFailed(f"the configuration at {issuer} is of another issuer")
        known |= {name: found.get(name) for name in _ENDPOINTS}
    provider = Provider(**known)
    for url in (provider.authorization_endpoint, provider.token_endpoint):
        _checked(url)
    return provider


@dataclass(frozen=True)
class LoginAttempt:
    """One login: its secrets are made once, and end with it."""

    provider: Provider
    redirect_uri: str
    state: str
    nonce: str
    verifier: str

    @classmethod
    def begin(cls, provider: Provider, redirect_uri: str) -> LoginAttempt:
        """Return an attempt with fresh secrets of 256 bits."""
        return cls(provider, redirect_uri, *(secrets.token_urlsafe(32) for _ in range(3)))

    @property
    def address(self) -> str:
        """Where the browser has to go."""
        asked = {
            "response_type": "code",
            "client_id": self.provider.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": self.provider.scope,
            "state": self.state,
            "nonce": self.nonce,
            "code_challenge": _base64url(hashlib.sha256(self.verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        endpoint = self.provider.authorization_endpoint
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(asked)}"

    def is_answered_by(self, given: dict[str, str]) -> bool:
        """Return whether the parameters that came to the redirect address answer this attempt."""
        is_ours = secrets.compare_digest(given.get("state", "").encode(), self.state.encode())
        return is_ours and given.get("iss", self.provider.issuer) == self.provider.issuer

    def redeem(self, given: dict[str, str]) -> Tokens:
        """Return the tokens of an answer for which `is_answered_by` holds. Raises LoginFailed."""
        if "code" not in given:
            raise LoginFailed(f"the issuer answered {_shown(given)}")
        body = {
            "grant_type": "authorization_code",
            "code": given["code"],
            "redirect_uri": self.redirect_uri,
            "code_verifier": self.verifier,
        }
        return _request(self.provider, body, nonce=self.nonce)


def renew(provider: Provider, old: Tokens) -> Tokens:
    """Return new tokens for those that have ended. Raises LoginFailed."""
    body = {"grant_type": "refresh_token", "refresh_token": old.refresh_token}
    found = _request(provider, body, subject=old.subject)
    return found if found.refresh_token else found._replace(refresh_token=old.refresh_token)


def _request(provider: Provider, body: dict[str, str], *, nonce: str = "", subject: str = "") -> Tokens:
    found = _ask("POST", provider.token_endpoint, {**body, "client_id": provider.client_id})
    id_token, is_id = found.get("id_token"), provider.token == ID
    claims: dict[str, Any] = {"sub": subject}
    if nonce or id_token:
        claims = _claims_of(id_token)
        audience = claims.get("aud")
        is_ours = provider.client_id in (audience if isinstance(audience, list) else [audience])
        if not is_ours or claims.get("iss") != provider.issuer or (nonce and claims.get("nonce") != nonce):
            raise LoginFailed("the issuer's id token is not for this login")
        if subject and claims.get("sub") != subject:
            raise LoginFailed("the issuer's id token is of another user")
    token = id_token if is_id else found.get("access_token")
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise LoginFailed(f"the issuer gave no {provider.token} token")
    life = claims.get("exp") if is_id else time.time() + _seconds(found.get("expires_in"))
    if isinstance(life, bool) or not isinstance(life, int | float):
        raise LoginFailed("the issuer's token has no end")
    return Tokens(token, _bounded(life), str(claims.get("sub", "")), str(found.get("refresh_token") or ""))


def _ask(method: str, url: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    host = urlsplit(url).netloc
    try:
        answer = httpx.request(method, url, data=body, timeout=TIMEOUT_S, follow_redirects=False)
        found = answer.json()
    except httpx.HTTPError as error:
        raise LoginFailed(f"the issuer's {host} can't be reached: {type(error).__name__}") from error
    except ValueError as error:
        raise LoginFailed(f"the issuer's {host} answered {answer.status_code} without JSON") from error
    if not isinstance(found, dict) or not answer.is_success:
        shown = _shown(found) if isinstance(found, dict) else ""
        raise LoginFailed(f"the issuer's {host} answered {answer.status_code} {shown}".rstrip())
    return found


def _shown(given: dict[str, Any]) -> str:
    """What an issuer says of an error, on one line of printable characters."""
    parts = [str(given[name]) for name in ("error", "error_description") if given.get(name)]
    return "".join(each if each.isprintable() else " " for each in ": ".join(parts)[:300]) or "no code"


def _checked(url: object) -> str:
    """Return the address. Raises LoginFailed unless it is https, or http to this machine."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname or ""))
    except ValueError:
        is_safe = False
    # It is printed, and opened: a terminal obeys what is not printable.
    if not is_safe or not parts.hostname or not (str(url).isascii() and str(url).isprintable()):
        raise LoginFailed(f"the issuer's address {str(url)[:200]!r} is not an https URL")
    return str(url)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _claims_of(id_token: object) -> dict[str, Any]:
    try:
        text = str(id_token).split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (IndexError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise LoginFailed("the issuer gave no id token")
    return found


def _seconds(given: object) -> float:
    try:
        return float(given) if isinstance(given, int | float | str) else DEFAULT_LIFE_S
    except (ValueError, OverflowError):
        return DEFAULT_LIFE_S


def _bounded(end_s: float) -> float:
    """Return the end of a token's life as a time that clocks have."""
    latest_s = time.time() + LONGEST_LIFE_S
    return max(float(end_s), 0.0) if end_s < latest_s else latest_s  # of NaN, too


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
