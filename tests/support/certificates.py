"""Certificates of throw-away servers and clients."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

HOST = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


def certify(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, its own authority, and its private key."""
    private = ec.generate_private_key(ec.SECP256R1())
    certificate = _signed("keylane tests", private.public_key(), "keylane tests", private, is_authority=True)
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(_text(private))
    return certificate_file, key_file


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key as PEM, and both in one file, as Kafka's brokers take them."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates; `file` is its own."""

    def __init__(self, folder: Path, name: str = "keylane tests authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = name
        self._private = ec.generate_private_key(ec.SECP256R1())
        own = _signed(name, self._private.public_key(), name, self._private, is_authority=True)
        self.file = folder / "ca.pem"
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def certify(
        self, name: str, host: x509.GeneralName = HOST, *, days: int = 1, password: bytes | None = None
    ) -> Pair:
        """A certificate for `host`, over since so many days where those are negative."""
        private = ec.generate_private_key(ec.SECP256R1())
        signed = _signed(name, private.public_key(), self._name, self._private, host=host, days=days)
        pair = Pair(*(self._folder / f"{name}-{part}.pem" for part in ("certificate", "key", "both")))
        text = signed.public_bytes(serialization.Encoding.PEM)
        pair.certificate.write_bytes(text)
        pair.key.write_bytes(_text(private, password))
        pair.both.write_bytes(_text(private) + text)
        return pair


def _signed(
    name: str,
    public: ec.EllipticCurvePublicKey,
    issuer: str,
    private: ec.EllipticCurvePrivateKey,
    *,
    host: x509.GeneralName = HOST,
    days: int = 1,
    is_authority: bool = False,
) -> x509.Certificate:
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - dt.timedelta(days=abs(days), hours=1))
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([host]), critical=False)
        .sign(private, hashes.SHA256())
    )


def _text(private: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    return private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
