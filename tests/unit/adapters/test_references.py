"""Variables that refer to Parameter Store and Secrets Manager, as moto has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, NoCredentialsError
from moto import mock_aws
from tests.support.builders import FUNCTIONS, an_event, load_handler

from keylane.adapters.aws import references
from keylane.errors import SettingsError, SettingsUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD = "KEYLANE_KAFKA_SASL_PASSWORD"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    references._provider.cache_clear()
    with mock_aws():
        yield
    references._provider.cache_clear()


def keep(name: str, value: str | bytes) -> str:
    kind = {"SecretBinary": value} if isinstance(value, bytes) else {"SecretString": value}
    made = boto3.client("secretsmanager").create_secret(Name=name, **kind)
    return str(made["ARN"])


def test_environment_without_references_is_the_very_same():
    environment = {"KEYLANE_REDIS_NODES": "a:1", "OTHER": "ssm:/not/ours", "KEYLANE_X": "ssmething:else"}
    assert references.resolved(environment) is environment
    assert not references.has_references(environment)


def test_parameters_and_secrets_stand_in_the_place_of_their_references(aws: None):
    boto3.client("ssm").put_parameter(Name="/kafka/bootstrap", Value="one:9092", Type="String")
    boto3.client("ssm").put_parameter(Name="/kafka/password", Value="hidden", Type="SecureString")
    arn = keep("AmazonMSK_orders", json.dumps({"username": "bob", "password": "hunter2"}))
    keep("plain", b"text")
    environment = {
        "KEYLANE_KAFKA_BOOTSTRAP": "ssm:/kafka/bootstrap",
        "KEYLANE_REDIS_PASSWORD": " ssm:/kafka/password ",
        "KEYLANE_KAFKA_SASL_USERNAME": "secretsmanager:AmazonMSK_orders#username",
        PASSWORD: f"secretsmanager:{arn}#password",
        "KEYLANE_KAFKA_SSL_KEY": "secretsmanager:plain",
        "OTHER": "ssm:/kafka/bootstrap",
    }
    assert references.has_references(environment)
    assert references.resolved(environment) == {
        "KEYLANE_KAFKA_BOOTSTRAP": "one:9092",
        "KEYLANE_REDIS_PASSWORD": "hidden",
        "KEYLANE_KAFKA_SASL_USERNAME": "bob",
        PASSWORD: "hunter2",
        "KEYLANE_KAFKA_SSL_KEY": "text",
        "OTHER": "ssm:/kafka/bootstrap",
    }


def test_value_is_used_again_for_a_while_and_then_fetched_anew(aws: None, monkeypatch: pytest.MonkeyPatch):
    keep("s", "first")
    environment = {PASSWORD: "secretsmanager:s"}
    assert references.resolved(environment)[PASSWORD] == "first"
    boto3.client("secretsmanager").put_secret_value(SecretId="s", SecretString="second")
    assert references.resolved(environment)[PASSWORD] == "first"
    monkeypatch.setattr(references, "MAX_AGE_S", -1)
    references._provider.cache_clear()
    references.resolved(environment)
    boto3.client("secretsmanager").put_secret_value(SecretId="s", SecretString="third")
    assert references.resolved(environment)[PASSWORD] == "third"


@pytest.mark.parametrize("reference", ["secretsmanager:no", "ssm:/no", "secretsmanager:s#no", "ssm:/p#a"])
def test_what_is_not_there_is_a_fault_of_the_variable_and_shows_no_secret(aws: None, reference: str):
    keep("s", json.dumps({"password": "hunter2"}))
    boto3.client("ssm").put_parameter(Name="/p", Value="hunter2", Type="String")
    with pytest.raises(SettingsError) as caught:
        references.resolved({PASSWORD: reference})
    assert caught.value.variable == PASSWORD
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2" not in repr(error)
        error = error.__cause__


class Failing:
    """A client of AWS's whose calls fail."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def get_secret_value(self, **_: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetSecretValue"), SettingsError),
        (NoCredentialsError(), SettingsError),
        (ClientError({"Error": {"Code": "ThrottlingException"}}, "GetSecretValue"), SettingsUnavailable),
        (ConnectTimeoutError(endpoint_url="https://s"), SettingsUnavailable),
    ],
)
def test_what_passes_by_itself_is_told_from_what_does_not(aws: None, error: Exception, kind: type):
    references._provider("secretsmanager").client = Failing(error)
    with pytest.raises(kind):
        references.resolved({PASSWORD: "secretsmanager:s"})


def test_a_reference_without_a_region_is_a_fault_that_names_the_variable_for_it(
    aws: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    with pytest.raises(SettingsError, match=r"^AWS_DEFAULT_REGION is not set: a setting refers to ssm$"):
        references.resolved({PASSWORD: "ssm:/kafka/password"})


def test_function_whose_secret_can_not_be_read_now_is_503_and_tells_no_name(
    aws: None, monkeypatch: pytest.MonkeyPatch
):
    error = ClientError({"Error": {"Code": "ThrottlingException"}}, "GetSecretValue")
    references._provider("secretsmanager").client = Failing(error)
    monkeypatch.setenv("KEYLANE_REDIS_NODES", "one:7001")
    monkeypatch.setenv("KEYLANE_REDIS_PASSWORD", "secretsmanager:redis-secret")
    answer = load_handler("query").lambda_handler(an_event("GET", "/topics/t/keys/k"), None)
    problem = json.loads(answer["body"])
    assert (answer["statusCode"], problem["type"]) == (503, "urn:keylane:problem:settings-unavailable")
    assert "redis-secret" not in answer["body"]


CARRIES = """
import sys
import handler
handler.application.parts()
print("boto3" in sys.modules, "confluent_kafka" in sys.modules, "jsonschema" in sys.modules)
"""


@pytest.mark.parametrize(
    ("function", "environment", "carries"),
    [
        (
            "query",
            {"KEYLANE_REDIS_NODES": "one:7001", "KEYLANE_REDIS_PASSWORD": "plain"},
            "False False False",
        ),
        ("produce", {"KEYLANE_KAFKA_BOOTSTRAP": "one:9092"}, "False True False"),
        ("explore", {"KEYLANE_KAFKA_BOOTSTRAP": "one:9092"}, "False True False"),
    ],
)
def test_functions_without_references_carry_no_boto3_when_all_is_made(
    function: str, environment: dict[str, str], carries: str
):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KEYLANE_")}
    done = subprocess.run(
        [sys.executable, "-c", CARRIES],
        check=True,
        timeout=60,
        cwd=FUNCTIONS / function,
        env=clean | environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == carries
