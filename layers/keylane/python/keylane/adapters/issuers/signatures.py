"""Signatures of tokens (RFC 7518, 3; RFC 8037): which kind of key each algorithm takes, and whether one fits.

An algorithm never takes a key of another kind, so a public key is never the secret of an HMAC.
"""

from collections.abc import Callable
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm

from keylane.adapters.issuers.jwk import CURVES, ED25519, RSA, IssuerKey


class Signature(NamedTuple):
    """An algorithm: the kind of its keys, and what raises InvalidSignature."""

    kind: str
    verify: Callable[[IssuerKey, bytes, bytes], None]


def _rsa(kind: HashAlgorithm) -> Signature:
    def verify(key: IssuerKey, signature: bytes, signed: bytes) -> None:
        assert isinstance(key.public, rsa.RSAPublicKey)  # noqa: S101 - for the type checker: of its kind
        key.public.verify(signature, signed, padding.PKCS1v15(), kind)

    return Signature(RSA, verify)


def _rsa_pss(kind: HashAlgorithm) -> Signature:
    salted = padding.PSS(padding.MGF1(kind), kind.digest_size)

    def verify(key: IssuerKey, signature: bytes, signed: bytes) -> None:
        assert isinstance(key.public, rsa.RSAPublicKey)  # noqa: S101 - for the type checker: of its kind
        key.public.verify(signature, signed, salted, kind)

    return Signature(RSA, verify)


def _ecdsa(curve: str, kind: HashAlgorithm) -> Signature:
    size = CURVES[curve][1]

    def verify(key: IssuerKey, signature: bytes, signed: bytes) -> None:
        assert isinstance(key.public, ec.EllipticCurvePublicKey)  # noqa: S101 - for the type checker: of its kind
        if len(signature) != 2 * size:
            raise InvalidSignature
        pair = int.from_bytes(signature[:size]), int.from_bytes(signature[size:])
        key.public.verify(encode_dss_signature(*pair), signed, ec.ECDSA(kind))

    return Signature(curve, verify)


def _eddsa(key: IssuerKey, signature: bytes, signed: bytes) -> None:
    assert isinstance(key.public, ed25519.Ed25519PublicKey)  # noqa: S101 - for the type checker: of its kind
    key.public.verify(signature, signed)


SIGNATURES = {
    "RS256": _rsa(SHA256()),
    "RS384": _rsa(SHA384()),
    "RS512": _rsa(SHA512()),
    "PS256": _rsa_pss(SHA256()),
    "PS384": _rsa_pss(SHA384()),
    "PS512": _rsa_pss(SHA512()),
    "ES256": _ecdsa("P-256", SHA256()),
    "ES384": _ecdsa("P-384", SHA384()),
    "ES512": _ecdsa("P-521", SHA512()),
    "EdDSA": Signature(ED25519, _eddsa),
}


def suits(key: IssuerKey, algorithm: str, key_id: str | None) -> bool:
    """Return whether a key may have signed a token with this algorithm and this `kid`."""
    if key.kind != SIGNATURES[algorithm].kind or key.algorithm not in {None, algorithm}:
        return False
    return key_id is None or key.key_id == key_id


def is_signed(key: IssuerKey, algorithm: str, signature: bytes, signed: bytes) -> bool:
    """Return whether the key made the signature of what is signed; the key `suits` the algorithm."""
    try:
        SIGNATURES[algorithm].verify(key, signature, signed)
    except InvalidSignature:
        return False
    return True
