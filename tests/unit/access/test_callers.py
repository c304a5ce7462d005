"""Who sends a request, by the identity that API Gateway reports."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.builders import a_request

from keylane.access.callers import ANONYMOUS, Caller

IDENTITY = {
    "apiKeyId": "k1",
    "apiKey": "the secret itself",
    "userArn": "arn:aws:iam::123456789012:user/ann",
    "sourceIp": "192.0.2.7",
}


def caller(**context: Any) -> Caller:
    headers = {"X-Forwarded-For": "198.51.100.1"}
    return a_request("PUT", "/topics/t/keys/k", headers=headers, context=context).caller


@pytest.mark.parametrize(
    ("context", "name"),
    [
        ({"identity": IDENTITY, "authorizer": {"principalId": "ann"}}, "authorizer:ann"),
        ({"identity": IDENTITY, "authorizer": {"claims": {"sub": "7c"}}}, "authorizer:7c"),
        ({"identity": IDENTITY}, "iam:arn:aws:iam::123456789012:user/ann"),
        ({"identity": IDENTITY | {"userArn": None}}, "api-key:k1"),
        ({"identity": {"sourceIp": "192.0.2.7"}}, "source-ip:192.0.2.7"),
        ({"identity": None, "authorizer": None}, ANONYMOUS),
        ({"authorizer": {"principalId": {"a": 1}, "claims": "none"}}, ANONYMOUS),
        ({}, ANONYMOUS),
    ],
)
def test_the_callers_own_word_counts_for_nothing(context: dict[str, Any], name: str):
    assert caller(**context).name() == name


@pytest.mark.parametrize(
    ("arn", "name"),
    [
        ("arn:aws:sts::1:assumed-role/app/session-1", "iam:arn:aws:sts::1:assumed-role/app"),
        ("arn:aws:sts::1:assumed-role/app/a@b.example", "iam:arn:aws:sts::1:assumed-role/app"),
        ("arn:aws-cn:sts::1:assumed-role/app/s", "iam:arn:aws-cn:sts::1:assumed-role/app"),
        ("arn:aws:sts::1:federated-user/ann", "iam:arn:aws:sts::1:federated-user/ann"),
        ("arn:aws:iam::1:user/assumed-role/ann", "iam:arn:aws:iam::1:user/assumed-role/ann"),
        ("arn:aws:iam::1:root", "iam:arn:aws:iam::1:root"),
    ],
)
def test_session_of_an_assumed_role_is_not_part_of_the_caller(arn: str, name: str):
    """A caller chooses the session's name, and could have a new limit with each."""
    assert caller(identity=IDENTITY | {"userArn": arn}).name() == name


def test_settings_choose_what_tells_callers_apart():
    assert caller(identity=IDENTITY).name(("api-key", "iam")) == "api-key:k1"
    assert caller(identity=IDENTITY).name(("authorizer",)) == ANONYMOUS
