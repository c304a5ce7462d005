"""`keylane access explain`: what it says of a token and a request, and that it never prints the token."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from tests.support.issuers import AUDIENCE, NAME, JwksServer, SigningKey, claims, jwks

from keylane_cli.access import access
from keylane_cli.check_config import check_settings
from keylane_local.errors import BadInput, StackError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = SigningKey("EdDSA")
LISTED = "a-listed-token-of-these-tests"
RULES = [
    {"name": "own", "issuer": NAME, "read": ["orders"], "key": "${sub}/*", "fields": ["id"]},
    {"name": "tenants", "issuer": NAME, "read": ["orders"], "where": {"tenant": "${tenant}"}},
    {"name": "staff", "issuer": NAME, "when": {"role": "staff"}, "read": ["*"]},
    {"name": "rates", "issuer": NAME, "read": ["rates"]},
]


def policy(**issuer: Any) -> str:
    given = {"jwks": jwks(KEY)} if "jwks_uri" not in issuer else {}
    known = {"issuer": NAME, "audience": AUDIENCE, "algorithms": ["EdDSA"], **given, **issuer}
    digest = hashlib.sha256(LISTED.encode()).hexdigest()
    return json.dumps({digest: {"name": "billing", "read": ["orders"]}, "issuers": [known], "rules": RULES})


@pytest.fixture
def explain(monkeypatch, tmp_path) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEYLANE_ACCESS", policy())

    def run(token: str, method: str, path: str, *, from_input: bool = False) -> Result:
        given = ["explain", "-" if from_input else token, method, path]
        found = CliRunner().invoke(access, given, input=f"{token}\n" if from_input else None)
        assert token not in found.output
        assert token.rpartition(".")[2] not in found.output
        return found

    return run


def test_it_says_which_rules_apply_what_they_permit_and_why_others_do_not(explain):
    found = explain(KEY.token(claims(tenant="t1")), "get", "/topics/orders/keys/ann%2F7")
    assert found.exit_code == 0
    assert found.output.splitlines() == [
        f"issuer '{NAME}', subject 'ann'",
        "signature and claims: verified",
        "rule own: applies",
        "rule tenants: applies",
        "rule staff: the claim role is not as `when` says",
        "rule rates: it names no such topic or view for this",
        "  own: keys that begin with 'ann/': 'ann/7' is one of them",
        "  own: of values id",
        "  tenants: rows whose tenant is 't1'",
        "allowed by own, tenants: the rows decide further",
    ]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("YW5uLzc?key_format=base64", "'ann/7' is one"),
        ("YW5uLzc", "'YW5uLzc' is none"),
        ("YW5uL/8?key_format=base64", None),
        ("YW5uL_8?key_format=base64", r"'ann/\\xff' is one"),
        ("ann%2F%FF", r"'ann/\\xff' is one"),
    ],
)
def test_a_key_is_the_one_that_the_request_names(explain, path, said):
    found = explain(KEY.token(claims()), "GET", f"/topics/orders/keys/{path}")
    if said is None:
        assert isinstance(found.exception, StackError | BadInput)
    else:
        assert f"  own: keys that begin with 'ann/': {said} of them" in found.output


@pytest.mark.parametrize(
    ("changed", "path", "said"),
    [
        ({}, "/topics/customers/keys/7", "403: no rule that applies names all"),
        ({}, "/brokers", "403: no rule that applies names all"),
        ({"exp": 1}, "/topics/orders/keys/7", "401: the token has expired"),
        ({"aud": "other"}, "/topics/orders/keys/7", "401: the token is for another audience"),
        ({"iss": "https://other.example.org/"}, "/topics/orders/keys/7", "401: the token is of an issuer"),
        ({"sub": 7}, "/topics/orders/keys/7", "401: the token has no subject"),
    ],
)
def test_a_request_that_is_refused_says_why_and_has_the_exit_code_1(explain, changed, path, said):
    found = explain(KEY.token(claims(**changed)), "GET", path)
    assert found.exit_code == 1
    assert found.output.splitlines()[-1].startswith(said)


@pytest.mark.parametrize(
    ("subject", "path", "said"),
    [
        ("ann", "/topics/orders/keys/ann%2F7/history", "allowed by own, tenants"),
        ("ann", "/topics/orders/keys/ann%2F7?event=true", "403: a change event has more than the row"),
        ("", "/topics/orders/keys/7/history", "403: the rules that apply compare fields"),
        ("", "/topics/orders/keys/7?as_of=2026-11-01T00:00:00Z", "403: the rules that apply compare fields"),
        ("", "/topics/orders/keys/7", "allowed by tenants"),
        ("ann", "/topics/orders/partitions", "403: rules of the access policy apply to this caller"),
    ],
)
def test_what_no_rule_can_permit_is_said_as_the_route_says_it(explain, monkeypatch, subject, path, said):
    if not subject:
        changed = json.loads(policy())
        changed["rules"] = [each for each in changed["rules"] if each["name"] != "own"]
        monkeypatch.setenv("KEYLANE_ACCESS", json.dumps(changed))
    found = explain(KEY.token(claims(tenant="t1")), "GET", path)
    assert found.output.splitlines()[-1].startswith(said)
    assert found.exit_code == (1 if said.startswith("403") else 0)


def test_a_token_may_come_from_standard_input(explain):
    found = explain(
        f"Bearer {KEY.token(claims())}", "GET", "/join/ann%2F7?topics=orders,rates", from_input=True
    )
    assert found.exit_code == 0
    assert "allowed by own, rates" in found.output


def test_a_listed_token_is_told_by_its_name(explain):
    assert (
        explain(LISTED, "GET", "/topics/orders").output == "the token is one of the list: billing\nallowed\n"
    )
    assert explain(LISTED, "PUT", "/topics/orders/keys/7").exit_code == 1
    assert explain("an-unknown-token-of-these", "GET", "/topics/orders").output.startswith("401: ")


def test_a_signature_that_cannot_be_verified_here_is_said(explain, monkeypatch):
    with JwksServer(KEY) as issuer:
        monkeypatch.setenv("KEYLANE_ACCESS", policy(jwks_uri=issuer.uri))
        assert "claims: verified" in explain(KEY.token(claims()), "GET", "/topics/orders/keys").output
        thief = SigningKey("EdDSA")
        found = explain(thief.token(claims()), "GET", "/topics/orders/keys")
        assert found.exit_code == 1
        assert "refused: the token's signature is not valid" in found.output
    found = explain(KEY.token(claims()), "GET", "/topics/orders/keys")
    assert "NOT verified here" in found.output
    assert found.exit_code == 0


def test_a_faulty_policy_and_a_path_without_a_route_are_errors(explain, monkeypatch):
    found = explain(KEY.token(claims()), "GET", "/nothing/here")
    assert isinstance(found.exception, StackError)
    assert "no route takes GET /nothing/here" in str(found.exception)
    monkeypatch.setenv("KEYLANE_ACCESS", "{}")
    assert "has no token and no rule" in str(explain(KEY.token(claims()), "GET", "/topics").exception)


def test_check_reads_the_policy_of_keylane_env(tmp_path: Path):
    file = tmp_path / "keylane.env"
    broken = policy().replace("${sub}/*", "${sub}*")
    (tmp_path / "access.toml").write_text("[access]\nissuers = 1\n")
    for value, said in (
        (policy(), ""),
        (broken, "rules[0].key has a * right behind a claim"),
        (f"file:{tmp_path}/access.toml", "access.toml:2: access.issuers is not an array"),
        (f"file:{tmp_path}/none.toml", "can't be read"),
        ("secretsmanager:keylane-access", ""),
    ):
        file.write_text(f"KEYLANE_ACCESS={value}\n")
        found = check_settings(file)
        assert [said in each.what for each in found] == ([True] if said else []), found
