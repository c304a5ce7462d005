"""An issuer of tokens: key pairs, tokens signed with them, and an HTTP server with the public keys."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from tests.support.http_doubles import HttpDouble

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.http_doubles import Exchange

NAME, AUDIENCE = "https://id.example.org/", "https://api.example.org"
HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
CURVES = {"ES256": (ec.SECP256R1(), 32), "ES384": (ec.SECP384R1(), 48), "ES512": (ec.SECP521R1(), 66)}
_CURVE_NAMES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


def encoded(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class SigningKey:
    """A key pair for one algorithm."""

    def __init__(self, algorithm: str = "ES256", key_id: str = "key-1", bits: int = 2048) -> None:
        self.algorithm, self.key_id = algorithm, key_id
        self.private: Any
        if algorithm in CURVES:
            self.private = ec.generate_private_key(CURVES[algorithm][0])
        elif algorithm == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
        else:
            self.private = rsa.generate_private_key(65_537, bits)

    @property
    def jwk(self) -> dict[str, str]:
        public, common = self.private.public_key(), {"kid": self.key_id, "use": "sig"}
        if self.algorithm in CURVES:
            numbers, size = public.public_numbers(), CURVES[self.algorithm][1]
            x, y = (encoded(each.to_bytes(size)) for each in (numbers.x, numbers.y))
            return {**common, "kty": "EC", "crv": _CURVE_NAMES[self.algorithm], "x": x, "y": y}
        if self.algorithm == "EdDSA":
            return {**common, "kty": "OKP", "crv": "Ed25519", "x": encoded(public.public_bytes_raw())}
        numbers = public.public_numbers()
        n, e = (encoded(each.to_bytes((each.bit_length() + 7) // 8)) for each in (numbers.n, numbers.e))
        return {**common, "kty": "RSA", "n": n, "e": e}

    def sign(self, signed: bytes) -> bytes:
        """The signature of a token's first two parts."""
        kind = HASHES.get(self.algorithm[2:], hashes.SHA256())
        if self.algorithm in CURVES:
            pair = decode_dss_signature(self.private.sign(signed, ec.ECDSA(kind)))
            return b"".join(each.to_bytes(CURVES[self.algorithm][1]) for each in pair)
        if self.algorithm == "EdDSA":
            return bytes(self.private.sign(signed))
        padded: Any = padding.PKCS1v15()
        if self.algorithm.startswith("PS"):
            padded = padding.PSS(padding.MGF1(kind), kind.digest_size)
        return bytes(self.private.sign(signed, padded, kind))

    def token(self, claims: Mapping[str, Any] | str, **header: Any) -> str:
        """A token with these claims, JSON text or an object; `header` replaces fields, None removes one."""
        fields = {"alg": self.algorithm, "typ": "JWT", "kid": self.key_id, **header}
        head = json.dumps({name: each for name, each in fields.items() if each is not None})
        body = claims if isinstance(claims, str) else json.dumps(claims)
        signed = f"{encoded(head.encode())}.{encoded(body.encode())}"
        return f"{signed}.{encoded(self.sign(signed.encode()))}"


def claims(**more: Any) -> dict[str, Any]:
    """Claims of a token that is valid for ten minutes; None removes one."""
    now_s = int(time.time())
    found = {"iss": NAME, "aud": AUDIENCE, "sub": "ann", "iat": now_s, "exp": now_s + 600, **more}
    return {name: each for name, each in found.items() if each is not None}


def jwks(*keys: SigningKey) -> dict[str, Any]:
    return {"keys": [each.jwk for each in keys]}


class JwksServer(HttpDouble):
    """Answers with `body` and `status`, as an issuer with its keys. `asked`: how often it was asked."""

    def __init__(self, *keys: SigningKey) -> None:
        self.body = json.dumps(jwks(*keys)).encode()
        self.status, self.headers = 200, dict[str, str]()
        self.asked = 0
        super().__init__(self._reply)
        self.uri = f"{self.url}/jwks.json"

    def _reply(self, exchange: Exchange) -> None:
        self.asked += 1
        exchange.answer(self.status, self.body, self.headers.items())

    def publish(self, *keys: SigningKey) -> None:
        self.body = json.dumps(jwks(*keys)).encode()
