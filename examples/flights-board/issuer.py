"""An issuer of tokens, as small as it can be: it believes whoever asks. Yours is your login service."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

AUDIENCE = "flights-board"
LIFETIME_S = 300
CUSTOMERS = {"JetBlue": {"airline": "B6"}, "LaGuardia": {"airport": "LGA"}}
"""Each with the claims that the rules of access.toml compare."""


class Issuer:
    """A key pair, and tokens that are signed with it. Another one's tokens are no good."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._key = Ed25519PrivateKey.generate()

    @property
    def jwks(self) -> dict[str, Any]:
        """The public key, as it is published."""
        public = _encode(self._key.public_key().public_bytes_raw())
        return {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "board", "alg": "EdDSA", "x": public}]}

    def token(self, customer: str, lifetime_s: int = LIFETIME_S) -> str:
        """Return a JWT. Raises KeyError for a customer whom nobody knows."""
        now_s = int(time.time())
        times = {"iat": now_s, "exp": now_s + lifetime_s}
        claims = {"iss": self._name, "aud": AUDIENCE, "sub": customer, **times, **CUSTOMERS[customer]}
        header = {"alg": "EdDSA", "typ": "JWT", "kid": "board"}
        signed = ".".join(_encode(json.dumps(each).encode()) for each in (header, claims))
        return f"{signed}.{_encode(self._key.sign(signed.encode()))}"


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
