"""Variables that refer to a value in one of AWS's stores instead of holding it.

    KEYLANE_KAFKA_SASL_PASSWORD = secretsmanager:AmazonMSK_orders#password
    KEYLANE_KAFKA_BOOTSTRAP     = ssm:/orders/kafka/bootstrap

`ssm:` with the name or ARN of a parameter, `secretsmanager:` with that of a secret; `#field` selects a field
of a JSON object. Any KEYLANE_ variable may be a reference. boto3 is imported only if one is.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from keylane.errors import SettingsError, SettingsUnavailable

MAX_AGE_S = 5
"""How long a fetched value is reused: one fetch serves several variables, and a burst of failures."""

_REFERENCE = re.compile(r"(ssm|secretsmanager):([^\s#]+)(?:#(\S+))?")
_PERMANENT = frozenset(
    {
        "AccessDeniedException",
        "DecryptionFailure",
        "InvalidKeyId",
        "InvalidParameterException",
        "InvalidRequestException",
        "ParameterNotFound",
        "ParameterVersionNotFound",
        "ResourceNotFoundException",
        "UnrecognizedClientException",
        "ValidationException",
    }
)
"""AWS's codes of faults that are not transient."""


def has_references(environment: Mapping[str, str]) -> bool:
    """Whether any of Keylane's variables is a reference."""
    return any(_found(name, value) for name, value in environment.items())


def resolved(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with its references replaced by their values.

    Raises SettingsError, which names the variable but no value; SettingsUnavailable if AWS can't be reached.
    """
    found = {name: found for name, value in environment.items() if (found := _found(name, value))}
    if not found:
        return environment
    return {**environment, **{name: _value(name, *each.groups()) for name, each in found.items()}}


def _found(name: str, value: str) -> re.Match[str] | None:
    return _REFERENCE.fullmatch(value.strip()) if name.startswith("KEYLANE_") else None


def _value(variable: str, store: str, name: str, field: str | None) -> str:
    try:
        from aws_lambda_powertools.utilities.parameters import GetParameterError  # noqa: PLC0415 (has boto3)
    except ImportError as error:
        raise SettingsError(variable, f"refers to {store}, which requires the package boto3") from error
    more = {"decrypt": True} if store == "ssm" else {}
    try:
        value = _provider(store).get(name, max_age=MAX_AGE_S, **more)
    except GetParameterError as error:
        _raise(variable, store, error)
    text = value.decode() if isinstance(value, bytes) else str(value)
    if field is None:
        return text
    try:
        return str(json.loads(text)[field])
    except (ValueError, TypeError, KeyError, RecursionError):
        # Without the error as its cause: that shows the secret.
        raise SettingsError(
            variable, f"refers to the field {field!r}, which the value does not have"
        ) from None


@cache
def _provider(store: str) -> Any:
    from aws_lambda_powertools.utilities.parameters import SecretsProvider, SSMProvider  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415
    from botocore.exceptions import NoRegionError  # noqa: PLC0415

    bounds = Config(connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 2, "mode": "standard"})
    try:
        return (SSMProvider if store == "ssm" else SecretsProvider)(boto_config=bounds)
    except NoRegionError as error:
        raise SettingsError("AWS_DEFAULT_REGION", f"is not set: a setting refers to {store}") from error


def _raise(variable: str, store: str, error: Exception) -> None:
    """Raise the error of Powertools as one of settings; AWS's own error is its context."""
    from botocore.exceptions import ClientError, ConnectionError, HTTPClientError  # noqa: A004, PLC0415

    cause = error.__context__
    if isinstance(cause, ClientError):
        code = cause.response["Error"]["Code"]
        if code in _PERMANENT:
            raise SettingsError(variable, _unreadable(store, code)) from error
        raise SettingsUnavailable(f"a setting can't be read from {store} at the moment: {code}") from error
    if isinstance(cause, ConnectionError | HTTPClientError):
        raise SettingsUnavailable(f"a setting can't be read from {store} at the moment") from error
    why = type(cause or error).__name__
    raise SettingsError(variable, _unreadable(store, why)) from error


def _unreadable(store: str, why: str) -> str:
    return f"refers to a value that can't be read from {store}: {why}"
