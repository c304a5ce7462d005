"""Who sends a request, by the identity that API Gateway reports."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.builders import an_event

from keylane.access.callers import ANONYMOUS, caller_of

IDENTITY = {
    "apiKeyId": "k1",
    "apiKey": "the secret itself",
    "userArn": "arn:aws:iam::123456789012:user/ann",
    "sourceIp": "192.0.2.7",
}


def event(**context: Any) -> dict[str, Any]:
    made = an_event("PUT", "/topics/t/keys/k", headers={"X-Forwarded-For": "198.51.100.1"})
    return made | {"requestContext": made["requestContext"] | context}


@pytest.mark.parametrize(
    ("context", "caller"),
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
def test_the_callers_own_word_counts_for_nothing(context: dict[str, Any], caller: str):
    assert caller_of(event(**context)) == caller


@pytest.mark.parametrize(
    ("arn", "caller"),
    [
        ("arn:aws:sts::1:assumed-role/app/session-1", "iam:arn:aws:sts::1:assumed-role/app"),
        ("arn:aws:sts::1:assumed-role/app/a@b.example", "iam:arn:aws:sts::1:assumed-role/app"),
        ("arn:aws-cn:sts::1:assumed-role/app/s", "iam:arn:aws-cn:sts::1:assumed-role/app"),
        ("arn:aws:sts::1:federated-user/ann", "iam:arn:aws:sts::1:federated-user/ann"),
        ("arn:aws:iam::1:user/assumed-role/ann", "iam:arn:aws:iam::1:user/assumed-role/ann"),
        ("arn:aws:iam::1:root", "iam:arn:aws:iam::1:root"),
    ],
)
def test_session_of_an_assumed_role_is_not_part_of_the_caller(arn: str, caller: str):
    """A caller chooses the session's name, and could have a new limit with each."""
    assert caller_of(event(identity=IDENTITY | {"userArn": arn})) == caller


def test_settings_choose_what_tells_callers_apart():
    assert caller_of(event(identity=IDENTITY), ("api-key", "iam")) == "api-key:k1"
    assert caller_of(event(identity=IDENTITY), ("authorizer",)) == ANONYMOUS
