"""An issuer of OpenID Connect: it logs everybody in as `subject`, with PKCE, and keeps what it was asked."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.support.http_doubles import HttpDouble
from tests.support.issuers import SigningKey, encoded, jwks

if TYPE_CHECKING:
    from tests.support.http_doubles import Exchange

CLIENT = "keylane"
AUDIENCE = "https://api.example.org"


class LoginIssuer(HttpDouble):
    """A browser that is sent to /authorize comes back at once with a code.

    `answer`: parameters that replace those of the redirect, None removes one. `claims`: those of id tokens.
    `refuses`: /token answers with this error. `life_s`: of access tokens; `said_s`: what it says
    of that, None for the truth. `renews`: whether there are refresh tokens, each for one use.
    """

    def __init__(self) -> None:
        self.key = SigningKey("ES256")
        self.subject, self.life_s, self.renews, self.refuses = "ann", 600.0, True, ""
        self.said_s: float | None = None
        self.answer: dict[str, str | None] = {}
        self.claims: dict[str, Any] = {}
        self.asked: list[dict[str, str]] = []
        """Of /token."""
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh_tokens: set[str] = set()
        super().__init__(self._reply)

    def policy(self, *rules: dict[str, Any]) -> str:
        known = {
            "issuer": self.url,
            "audience": AUDIENCE,
            "algorithms": ["ES256"],
            "jwks_uri": f"{self.url}/jwks.json",
            "leeway_s": 0,
        }
        return json.dumps({"issuers": [known], "rules": [{"issuer": self.url, **each} for each in rules]})

    def show(self, path: str) -> dict[str, Any] | None:
        if path == "/jwks.json":
            return jwks(self.key)
        if path == "/.well-known/openid-configuration":
            endpoints = {
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
            }
            return {"issuer": self.url, "jwks_uri": f"{self.url}/jwks.json", **endpoints}
        return None

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser is sent."""
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT)
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe(8)
        self._codes[code] = asked
        given = {"code": code, "state": asked["state"], "iss": self.url, **self.answer}
        query = urlencode({name: each for name, each in given.items() if each is not None})
        return f"{asked['redirect_uri']}?{query}"

    def give(self, asked: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """The answer of /token."""
        self.asked.append(asked)
        if self.refuses:
            return 400, {"error": self.refuses, "error_description": "as the test wants it"}
        nonce = None
        if asked["grant_type"] == "refresh_token":
            if asked["refresh_token"] not in self._refresh_tokens:
                return 400, {"error": "invalid_grant", "error_description": "unknown refresh token"}
            self._refresh_tokens.remove(asked["refresh_token"])
        else:
            begun = self._codes.pop(asked["code"], None)  # a code is for one use
            challenge = encoded(hashlib.sha256(asked["code_verifier"].encode()).digest())
            if begun is None or begun["code_challenge"] != challenge:
                return 400, {"error": "invalid_grant", "error_description": "unknown code"}
            if (begun["redirect_uri"], begun["client_id"]) != (asked["redirect_uri"], asked["client_id"]):
                return 400, {"error": "invalid_grant", "error_description": "of another client"}
            nonce = begun["nonce"]
        return 200, self._tokens(nonce)

    def _tokens(self, nonce: str | None) -> dict[str, Any]:
        now_s = time.time()
        common = {"iss": self.url, "sub": self.subject, "iat": int(now_s)}
        access = {**common, "aud": AUDIENCE, "exp": now_s + self.life_s, "jti": secrets.token_hex(4)}
        identity = {**common, "aud": CLIENT, "exp": now_s + self.life_s, "nonce": nonce, **self.claims}
        found: dict[str, Any] = {"access_token": self.key.token(access), "token_type": "Bearer"}
        said_s = self.life_s if self.said_s is None else self.said_s
        found |= {"expires_in": said_s, "id_token": self.key.token(identity)}
        if self.renews:
            found["refresh_token"] = secrets.token_urlsafe(8)
            self._refresh_tokens.add(found["refresh_token"])
        return found

    def _reply(self, exchange: Exchange) -> None:
        parts = urlsplit(exchange.path)
        if exchange.command == "POST":
            status, document = self.give(dict(parse_qsl(exchange.body().decode())))
        elif parts.path == "/authorize":
            address = self.authorize(dict(parse_qsl(parts.query)))
            exchange.answer(302, headers=[("Location", address)])
            return
        else:
            found = self.show(parts.path)
            status, document = 404 if found is None else 200, found or {}
        headers = {"Content-Type": "application/json", "Access-Control-Allow-Origin": "*"}
        exchange.answer(status, json.dumps(document).encode(), headers.items())
