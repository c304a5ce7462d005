"""How to reach Kafka as kafka-python takes it: the same settings, other names.

Certificates and keys go as text: tasks have no files of ours.
"""

import importlib.util
import ssl
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

from keylane.adapters.kafka.options import AWS_MSK_IAM, FULL, NONE, Connection, Security
from keylane.adapters.kafka.tokens import TokenSigner
from keylane.errors import BadConfig, SettingsError
from keylane_spark.engine.kafka_options import pem_text

_SIGNER = "aws_msk_iam_sasl_signer"


def portable(connection: Connection) -> Connection:
    """The connection with the text of its files, for tasks on other machines.

    Raises SettingsError where a file can't be read or the job's own reader can't do what is asked, BadConfig
    where a package is missing.
    """
    security = connection.security
    if security.has_tls and security.verify == NONE:
        what = 'is none: reader = "direct" of [job] always checks the authority; it takes full or chain'
        raise SettingsError("KEYLANE_KAFKA_SSL_VERIFY", what)
    if security.has_sasl and security.mechanism == AWS_MSK_IAM and importlib.util.find_spec(_SIGNER) is None:
        raise BadConfig(
            'KEYLANE_KAFKA_SASL_MECHANISM=AWS_MSK_IAM and reader = "direct" of [job] require the package '
            'aws-msk-iam-sasl-signer-python: install it, or set reader = "spark"'
        )
    with_texts = replace(
        security,
        ca=pem_text("KEYLANE_KAFKA_SSL_CA", security.ca),
        certificate=pem_text("KEYLANE_KAFKA_SSL_CERTIFICATE", security.certificate),
        key=pem_text("KEYLANE_KAFKA_SSL_KEY", security.key),
    )
    if security.has_tls:
        _context(with_texts)
    return replace(connection, security=with_texts)


def configuration(connection: Connection) -> dict[str, Any]:
    """Options of kafka-python for a connection that is `portable`."""
    security = connection.security
    found: dict[str, Any] = {
        "bootstrap_servers": connection.bootstrap.split(","),
        "security_protocol": security.protocol,
    }
    if security.has_sasl:
        if security.mechanism == AWS_MSK_IAM:
            found["sasl_mechanism"] = "OAUTHBEARER"
            found["sasl_oauth_token_provider"] = _SignedTokens(security.region)
        else:
            found["sasl_mechanism"] = security.mechanism
            found["sasl_plain_username"] = security.username
            found["sasl_plain_password"] = security.password
    if security.has_tls:
        found["ssl_context"] = _context(security)
    return found


class _SignedTokens(AbstractTokenProvider):  # type: ignore[misc]
    """Tokens for MSK with IAM: each connection gets a new one."""

    def __init__(self, region: str) -> None:
        super().__init__()
        self._signer = TokenSigner(region)

    def token(self) -> str:
        """Return a token that is valid now."""
        return self._signer("")[0]


class _ClosingSocket(ssl.SSLSocket):
    """Closes itself if its handshake fails: kafka-python leaves it open."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT002 (the base has it so)
        """See `ssl.SSLSocket`."""
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError:
            self.close()
            raise


def _context(security: Security) -> ssl.SSLContext:
    """Raises SettingsError, which shows no secret."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = _ClosingSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = security.verify == FULL
    if security.ca:
        try:
            context.load_verify_locations(cadata=security.ca)
        except (ssl.SSLError, ValueError) as error:
            raise SettingsError("KEYLANE_KAFKA_SSL_CA", "has no certificate in PEM form") from error
    else:
        context.load_default_certs()
    if security.certificate:
        # Python reads a key from a file only; the folder is the process's own, and is removed at once.
        with tempfile.TemporaryDirectory() as folder:
            chain, key = Path(folder, "chain.pem"), Path(folder, "key.pem")
            chain.write_text(security.certificate, encoding="ascii")
            key.write_text(security.key, encoding="ascii")
            try:
                context.load_cert_chain(chain, key, security.key_password or "")
            except (ssl.SSLError, OSError) as error:
                what = "does not fit its key, or the password of the key is wrong"
                raise SettingsError("KEYLANE_KAFKA_SSL_CERTIFICATE", what) from error
    return context
