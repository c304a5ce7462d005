"""Public keys of an issuer: a JSON Web Key Set (RFC 7517), as keys that `cryptography` verifies with.

A key that can't verify a signature here is left out: one of another kind, too short, or for another use. So
none may be left, as where an issuer withdraws its last key. A set that an operator writes into the policy is
read strictly instead: each of its keys must be one.
"""

import json
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import Any, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

MOST_KEYS = 100
LEAST_RSA_BITS, MOST_RSA_BITS = 2_048, 8_192
LEAST_EXPONENT, MOST_EXPONENT = 3, 1 << 32
RSA, ED25519 = "RSA", "Ed25519"
CURVES: dict[str, tuple[ec.EllipticCurve, int]] = {
    "P-256": (ec.SECP256R1(), 32),
    "P-384": (ec.SECP384R1(), 48),
    "P-521": (ec.SECP521R1(), 66),
}
"""Curves by their names, and how many bytes a coordinate has."""
_PRIVATE = {"d", "p", "q", "dp", "dq", "qi", "k"}
PublicKey: TypeAlias = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A key of an issuer. `kind`: RSA, ED25519, or the name of a curve; `algorithm`: the only one, if any."""

    key_id: str | None
    kind: str
    algorithm: str | None
    public: PublicKey


def read_jwks(text: bytes, *, is_strict: bool = False) -> tuple[IssuerKey, ...]:
    """Return the keys of a set. Raises ValueError, which shows no key."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    given = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(given, list) or len(given) > MOST_KEYS or (is_strict and not given):
        raise ValueError(f"it is not an object with {'1' if is_strict else 'up'} to {MOST_KEYS} keys")
    found = []
    for number, each in enumerate(given):
        try:
            found.append(_key_of(each))
        except (ValueError, UnsupportedAlgorithm) as error:
            if is_strict:
                raise ValueError(f"keys[{number}] {error}") from None
    return tuple(found)


def _key_of(given: Any) -> IssuerKey:
    """Return a key. Raises ValueError, UnsupportedAlgorithm."""
    if not isinstance(given, dict):
        raise ValueError("is not an object")  # noqa: TRY004 (as of any other bad key)
    if not _PRIVATE.isdisjoint(given):
        raise ValueError("has a private or secret part: only public keys belong here")
    operations = given.get("key_ops", ["verify"])
    if given.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        raise ValueError("is not for signatures (use, key_ops)")
    key_id, algorithm = given.get("kid"), given.get("alg")
    if not all(each is None or isinstance(each, str) for each in (key_id, algorithm)):
        raise ValueError("has a kid or an alg that is not a string")
    return IssuerKey(key_id, *_public_of(given, algorithm))


def _public_of(given: dict[str, Any], algorithm: str | None) -> tuple[str, str | None, PublicKey]:
    kind, curve = given.get("kty"), given.get("crv")
    if kind == "RSA":
        modulus, exponent = _number(given, "n"), _number(given, "e")
        bits = modulus.bit_length()
        if not LEAST_RSA_BITS <= bits <= MOST_RSA_BITS or not LEAST_EXPONENT <= exponent < MOST_EXPONENT:
            raise ValueError(
                f"is an RSA key of {bits} bits: {LEAST_RSA_BITS} to {MOST_RSA_BITS} are accepted"
            )
        return RSA, algorithm, rsa.RSAPublicNumbers(exponent, modulus).public_key()
    if kind == "EC" and isinstance(curve, str) and curve in CURVES:
        numbers = ec.EllipticCurvePublicNumbers(_number(given, "x"), _number(given, "y"), CURVES[curve][0])
        return curve, algorithm, numbers.public_key()
    if kind == "OKP" and curve == "Ed25519":
        return ED25519, algorithm, ed25519.Ed25519PublicKey.from_public_bytes(_bytes(given, "x"))
    raise ValueError("is of another kind than RSA, EC (P-256, P-384, P-521) and Ed25519")


def _number(given: dict[str, Any], name: str) -> int:
    return int.from_bytes(_bytes(given, name))


def _bytes(given: dict[str, Any], name: str) -> bytes:
    text = given.get(name)
    if not isinstance(text, str) or not text.isascii() or len(text) > MOST_RSA_BITS:
        raise ValueError(f"has no {name} in base64url")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
