"""How to reach Kafka as its Java client takes it, in Spark's executors: the same settings, other names.

Certificates and keys go as text: executors have no files of ours. For MSK with IAM the job needs a jar of
AWS' own, software.amazon.msk:aws-msk-iam-auth: see `connector_jars.with_iam`.
"""

from pathlib import Path

from keylane.adapters.kafka.options import AWS_MSK_IAM, FULL, NONE, PLAINTEXT, Connection, Security, is_pem
from keylane.errors import SettingsError

REDACTED = "(?i)secret|password|passphrase|token|access[.]?key|jaas|keystore"
"""Names of options whose values Spark shows nowhere: its own, and ours."""

_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_IAM = "software.amazon.msk.auth.iam.IAM"


def options(connection: Connection) -> dict[str, str]:
    """Options of Spark's Kafka source.

    Raises SettingsError for what Java's client can't do, and where a file can't be read.
    """
    found = {"bootstrap.servers": connection.bootstrap}
    if connection.client.client_id:
        found["client.id"] = connection.client.client_id
    security = connection.security
    if security.protocol != PLAINTEXT:
        found["security.protocol"] = security.protocol
    if security.has_sasl:
        found |= _sasl(security)
    if security.has_tls:
        found |= _tls(security)
    return {f"kafka.{name}": value for name, value in found.items()}


def _sasl(security: Security) -> dict[str, str]:
    if security.mechanism == AWS_MSK_IAM:
        return {
            "sasl.mechanism": AWS_MSK_IAM,
            "sasl.jaas.config": f"{_IAM}LoginModule required;",
            "sasl.client.callback.handler.class": f"{_IAM}ClientCallbackHandler",
        }
    login = _LOGIN[security.mechanism]
    who = f"username={_quoted(security.username)} password={_quoted(security.password)}"
    return {"sasl.mechanism": security.mechanism, "sasl.jaas.config": f"{login} required {who};"}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _tls(security: Security) -> dict[str, str]:
    found = {}
    if security.verify == NONE:
        what = "is none: Java's client always checks the authority; the job takes full or chain"
        raise SettingsError("KEYLANE_KAFKA_SSL_VERIFY", what)
    if security.verify != FULL:
        found["ssl.endpoint.identification.algorithm"] = ""
    if security.ca:
        found["ssl.truststore.type"] = "PEM"
        found["ssl.truststore.certificates"] = pem_text("KEYLANE_KAFKA_SSL_CA", security.ca)
    if security.certificate:
        found["ssl.keystore.type"] = "PEM"
        found["ssl.keystore.certificate.chain"] = pem_text(
            "KEYLANE_KAFKA_SSL_CERTIFICATE", security.certificate
        )
        found["ssl.keystore.key"] = pem_text("KEYLANE_KAFKA_SSL_KEY", security.key)
    if security.key_password:
        found["ssl.key.password"] = security.key_password
    return found


def pem_text(variable: str, given: str) -> str:
    """The text of a certificate or key: given itself, or by its file. Raises SettingsError."""
    if not given or is_pem(given):
        return given
    try:
        return Path(given).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(variable, f"can't be read: {type(error).__name__}") from error
