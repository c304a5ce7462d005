"""The function that replaces the cache's passwords: each step as Secrets Manager calls it, and again."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.cloudformation import of_type, template

FOUND = template("infra/cache.yaml")
FUNCTION = FOUND["Resources"]["RotationFunction"]["Properties"]
CODE = FUNCTION["Code"]["ZipFile"]
SECRET, USER = "arn:secret", "keylane-reader"
INLINE_LIMIT = 4096
STEPS = ("createSecret", "setSecret", "testSecret", "finishSecret")


class Missing(Exception):
    """Secrets Manager has no such version."""


class SecretStore:
    """Secrets Manager with one secret, whose version `old` is current; a rotation to `new` has begun."""

    exceptions = SimpleNamespace(ResourceNotFoundException=Missing)

    def __init__(self) -> None:
        self.stages: dict[str, list[str]] = {"old": ["AWSCURRENT"], "new": []}
        self.texts = {"old": json.dumps({"password": "first"})}

    def describe_secret(self, **_: str) -> dict[str, Any]:
        return {"VersionIdsToStages": self.stages}

    def get_secret_value(self, **given: str) -> dict[str, str]:
        version = given.get("VersionId") or next(
            name for name, stages in self.stages.items() if "AWSCURRENT" in stages
        )
        if version not in self.texts:
            raise Missing
        return {"SecretString": self.texts[version]}

    def put_secret_value(self, **given: Any) -> None:
        self.texts[given["ClientRequestToken"]] = given["SecretString"]
        self.stages[given["ClientRequestToken"]] = given["VersionStages"]

    def update_secret_version_stage(self, **given: str) -> None:
        self.stages[given["RemoveFromVersionId"]].remove(given["VersionStage"])
        self.stages[given["MoveToVersionId"]].append(given["VersionStage"])

    def password(self) -> str:
        return str(json.loads(self.get_secret_value()["SecretString"])["password"])


class CacheUsers:
    """ElastiCache with one user, who takes a moment to change."""

    def __init__(self) -> None:
        self.passwords: list[str] = ["first"]
        self.statuses: list[str] = []

    def modify_user(self, **given: Any) -> None:
        assert given["UserId"] == USER
        self.passwords = given["AuthenticationMode"]["Passwords"]
        self.statuses = ["modifying", "active"]

    def describe_users(self, **_: str) -> dict[str, Any]:
        return {"Users": [{"Status": self.statuses.pop(0)}]}


@pytest.fixture
def rotation(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], SecretStore, CacheUsers]:
    """The function's module, with both services."""
    store, users = SecretStore(), CacheUsers()
    clients = {"secretsmanager": store, "elasticache": users}
    monkeypatch.setitem(__import__("sys").modules, "boto3", SimpleNamespace(client=clients.__getitem__))
    monkeypatch.setenv("USERS", json.dumps({SECRET: USER}))
    module: dict[str, Any] = {}
    exec(compile(CODE, "index.py", "exec"), module)  # noqa: S102 (the template's own code)
    module["time"] = SimpleNamespace(sleep=lambda _: None)
    return module, store, users


def run(module: dict[str, Any], *steps: str) -> None:
    for step in steps:
        module["handler"]({"SecretId": SECRET, "ClientRequestToken": "new", "Step": step}, None)


def test_the_old_password_stays_valid_beside_the_new_one(rotation):
    module, store, users = rotation
    run(module, *STEPS)
    assert store.password() != "first"
    assert len(store.password()) == 64
    assert users.passwords == [store.password(), "first"]


@pytest.mark.parametrize("repeated", STEPS)
def test_a_step_that_is_called_again_changes_nothing_more(rotation, repeated):
    module, store, users = rotation
    upto = STEPS.index(repeated) + 1
    run(module, *STEPS[:upto], repeated, *STEPS[upto:])
    assert store.stages == {"old": [], "new": ["AWSPENDING", "AWSCURRENT"]}
    assert users.passwords == [store.password(), "first"]


def test_clients_read_the_old_password_until_the_cache_accepts_the_new_one(rotation):
    module, store, users = rotation
    run(module, *STEPS[:2])
    assert store.password() == "first"
    assert "first" in users.passwords


def test_the_code_fits_into_the_template_and_names_every_user():
    assert len(CODE) <= INLINE_LIMIT
    text, values = FUNCTION["Environment"]["Variables"]["USERS"]["Fn::Sub"]
    condition, more, without = values["More"]["Fn::If"]
    users = of_type(FOUND, "AWS::ElastiCache::User")
    for given, names in (
        (more["Fn::Sub"], users),
        (without, [name for name, each in users.items() if each.get("Condition") != condition]),
    ):
        wanted = {f"${{{name}Secret}}": f"${{{name}}}" for name in names}
        assert json.loads(text.replace("${More}", given)) == wanted


def test_every_secret_is_rotated_or_none():
    schedules = of_type(FOUND, "AWS::SecretsManager::RotationSchedule")
    rotated = {each["Properties"]["SecretId"]["Ref"] for each in schedules.values()}
    assert rotated == of_type(FOUND, "AWS::SecretsManager::Secret").keys()
    conditions = {"IsRotated", "IsServerRotated"}
    made = {name for name, each in FOUND["Resources"].items() if each.get("Condition") in conditions}
    assert made == {name for name in FOUND["Resources"] if "Rotation" in name}
    assert all(each["Properties"]["RotateImmediatelyOnUpdate"] is False for each in schedules.values())
