"""The access policy as it is written: JSON, or a file of JSON or TOML, and where its faults are."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from tests.support.issuers import SigningKey, jwks

from keylane.access.grants import Grant
from keylane.access.policy import Issuer
from keylane.access.scopes import KeyRule, PermittedRows, ScopeRule
from keylane.config.access import read_policy
from keylane.errors import SettingsError, SettingsUnavailable
from keylane.formats.toml_lines import line_of

ISSUER = "https://id.example.org/"
DIGEST = hashlib.sha256(b"throw-away-token-1").hexdigest()
KNOWN = {"issuer": ISSUER, "audience": "api", "algorithms": ["RS256"], "jwks_uri": "https://id.example.org/k"}
TOML = f"""\
# Who may do what.
[access.{DIGEST}]
name = "billing"
read = ["orders"]

[[access.issuers]]
issuer = "{ISSUER}"
audience = ["api", "other"]
algorithms = ["RS256", "EdDSA"]
jwks_uri = "https://id.example.org/k"
leeway_s = 5

[[access.rules]]
name = "own"
issuer = "{ISSUER}"
when = {{ scope = "orders" }}
read = ["orders"]
write = ["orders"]
key = "${{sub}}/*"
fields = ["id", "lines.amount"]
stamp = "x-by"

[[access.rules]]
issuer = "{ISSUER}"
read = ["orders"]
[access.rules.where]
tenant = "${{tenant}}"
lines.kind = [1, 2]
"""


def read(**policy: Any):
    return read_policy({"KEYLANE_ACCESS": json.dumps(policy)})


def fault_of(**policy: Any) -> str:
    with pytest.raises(SettingsError) as raised:
        read(**policy)
    return str(raised.value)


def fault_of_rule(**parts: Any) -> str:
    return fault_of(issuers=[KNOWN], rules=[{"issuer": ISSUER, "read": ["orders"], **parts}])


def test_a_toml_file_has_what_the_json_has(tmp_path):
    import tomllib  # noqa: PLC0415

    (tmp_path / "access.toml").write_text(TOML)
    (tmp_path / "access.json").write_text(json.dumps(tomllib.loads(TOML)["access"]))
    by_toml = read_policy({"KEYLANE_ACCESS": f"file:{tmp_path}/access.toml"})
    assert by_toml == read_policy({"KEYLANE_ACCESS": f"file:{tmp_path}/access.json"})
    assert by_toml == read(**tomllib.loads(TOML)["access"])
    assert by_toml.grants == {DIGEST: Grant("billing", ("orders",))}
    assert by_toml.issuers == (
        Issuer(ISSUER, ("api", "other"), ("RS256", "EdDSA"), "https://id.example.org/k", leeway_s=5),
    )
    assert [rule.name for rule in by_toml.rules] == ["own", "rules[1]"]
    assert [name for name, _ in by_toml.rules[1].where] == ["tenant", "lines.kind"]


def test_tokens_alone_are_a_policy_as_ever():
    found = read(**{DIGEST: {"name": "billing", "write": ["*"]}})
    assert found.grants == {DIGEST: Grant("billing", (), ("*",))}
    assert (found.issuers, found.rules) == ((), ())


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"key": "${sub}*"}, "rules[0].key has a * right behind a claim"),
        ({"key": "*"}, "rules[0].key has a *"),
        ({"key": "a*b"}, "rules[0].key has a *"),
        ({"key": ""}, "rules[0].key is not a text"),
        ({"key": 7}, "rules[0].key is not a text"),
        ({"key": "${a}${b}"}, "two claims without a text"),
        ({"key": "${sub}x"}, "a letter or digit right behind"),
        ({"key": "${sub"}, "a ${ that is not"),
        ({"key": "${}"}, "a ${ that is not"),
        ({"write": ["orders"], "where": {"t": "${t}"}}, "rules[0].write with where needs a key"),
        ({"views": ["v"], "where": {"t": "${t}"}}, "rules[0].views have keys alone"),
        ({"views": ["v"], "fields": ["id"]}, "rules[0].views have keys alone"),
        ({"stamp": "x-by"}, "rules[0].stamp is for writes"),
        ({"write": ["orders"], "stamp": "x by"}, "rules[0].stamp is not a header's name"),
        ({"read": []}, "rules[0] permits nothing"),
        ({"read": "orders"}, "rules[0].read is not an array of patterns"),
        ({"read": ["${sub}"]}, "rules[0].read names topics"),
        ({"where": {"t": []}}, "rules[0].where.t is not a value"),
        ({"where": {"t": ""}}, "rules[0].where.t is not a value"),
        ({"where": {"t": [None]}}, "rules[0].where.t is not a value"),
        ({"where": ["t"]}, "rules[0].where is not a table"),
        ({"when": {"scope": ["a", "b"]}}, "rules[0].when.scope is not a string"),
        ({"when": {"scope": "${sub}"}}, "rules[0].when.scope is compared as it is"),
        ({"fields": ["a..b"]}, "rules[0].fields has 'a..b'"),
        ({"fields": []}, "rules[0].fields needs fields"),
        (
            {"issuer": "https://id.example.org"},
            "rules[0].issuer is none of the policy's issuers: did you mean",
        ),
        ({"keys": "${sub}"}, "rules[0].keys is unknown: did you mean key?"),
        ({"name": "a\nb"}, "rules[0].name is not"),
    ],
)
def test_a_faulty_rule_is_refused_with_its_place(parts, said):
    assert said in fault_of_rule(**parts)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"algorithms": ["HS256"]}, "issuers[0].algorithms has 'HS256'"),
        ({"algorithms": ["none"]}, "issuers[0].algorithms has 'none'"),
        ({"algorithms": []}, "issuers[0].algorithms needs"),
        ({"audience": None}, "issuers[0].audience needs"),
        ({"audience": ""}, "issuers[0].audience needs"),
        ({"jwks_uri": "http://id.example.org/k"}, "issuers[0].jwks_uri is not an https URL"),
        ({"jwks_uri": "https://a:b@id.example.org/k"}, "issuers[0].jwks_uri is not an https URL"),
        ({"jwks_uri": "http://localhost.example.org/k"}, "issuers[0].jwks_uri is not an https URL"),
        ({"jwks_uri": "https://id.example.org:x/"}, "issuers[0].jwks_uri is not an https URL"),
        ({"jwks_uri": "file:///etc/passwd"}, "issuers[0].jwks_uri is not an https URL"),
        ({"jwks": {"keys": []}}, "issuers[0] has either jwks_uri or jwks"),
        ({"leeway_s": 301}, "issuers[0].leeway_s is not an integer from 0 to 300"),
        ({"leeway_s": True}, "issuers[0].leeway_s is not an integer"),
        ({"issuer": ""}, "issuers[0].issuer needs"),
        ({"jwk_uri": "x"}, "issuers[0].jwk_uri is unknown: did you mean"),
    ],
)
def test_a_faulty_issuer_is_refused_with_its_place(parts, said):
    assert said in fault_of(issuers=[KNOWN | parts], rules=[{"issuer": ISSUER, "read": ["*"]}])


@pytest.mark.parametrize("uri", ["http://127.0.0.1:8080/k", "http://[::1]/k", "http://localhost/k?a=b"])
def test_keys_may_come_from_the_machine_itself_without_tls(uri):
    [found] = read(issuers=[KNOWN | {"jwks_uri": uri}], rules=[{"issuer": ISSUER, "read": ["*"]}]).issuers
    assert found.jwks_uri == uri


def test_keys_in_the_policy_are_read_at_the_start():
    key = SigningKey("EdDSA")
    given = {name: each for name, each in KNOWN.items() if name != "jwks_uri"}
    [found] = read(issuers=[given | {"jwks": jwks(key)}], rules=[{"issuer": ISSUER, "read": ["*"]}]).issuers
    assert found.jwks is not None
    for broken, said in (
        ({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}, "keys[0] has a private or secret part"),
        ({"keys": [key.jwk | {"d": "c2VjcmV0"}]}, "keys[0] has a private or secret part"),
        ({"keys": [key.jwk, {"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}, "keys[1] is an RSA key of 17 bits"),
        ({"keys": [key.jwk | {"x": "AA"}]}, "keys[0]"),
        ({"keys": [key.jwk | {"use": "enc"}]}, "keys[0] is not for signatures"),
        ({"keys": []}, "1 to 100 keys"),
        ("{", "it is not JSON"),
    ):
        text = fault_of(issuers=[given | {"jwks": broken}], rules=[])
        assert "c2VjcmV0" not in text
        assert said in fault_of(issuers=[given | {"jwks": broken}], rules=[{"issuer": ISSUER, "read": ["*"]}])


def test_names_of_issuers_and_rules_are_there_once():
    rule = {"issuer": ISSUER, "read": ["*"], "name": "a"}
    assert "issuers[1].issuer is there twice" in fault_of(issuers=[KNOWN, KNOWN], rules=[rule])
    assert "rules[1].name is there twice" in fault_of(issuers=[KNOWN], rules=[rule, rule])


def test_a_name_that_is_twice_in_the_json_is_refused():
    with pytest.raises(SettingsError, match="a name is there twice"):
        read_policy({"KEYLANE_ACCESS": '{"rules": [], "rules": []}'})


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('key = "${sub}/*"', 'key = "${sub}*"', 19),
        ('algorithms = ["RS256", "EdDSA"]', 'algorithms = ["HS256"]', 9),
        ('tenant = "${tenant}"', 'tenant = ""', 27),
        ('[[access.rules]]\nname = "own"', '[[access.rules]]\nkind = 1\nname = "own"', 14),
        ('read = ["orders"]\n[access.rules.where]', "read = []\n[access.rules.where]", 23),
    ],
)
def test_a_fault_of_a_toml_file_has_its_line(tmp_path, old, new, line):
    file = tmp_path / "access.toml"
    assert old in TOML
    file.write_text(TOML.replace(old, new))
    with pytest.raises(SettingsError, match=f"is wrong at {file}:{line}: access.") as raised:
        read_policy({"KEYLANE_ACCESS": f"file:{file}"})
    assert DIGEST not in str(raised.value)


def test_a_file_that_is_missing_or_no_toml_is_an_error_of_the_setting(tmp_path):
    with pytest.raises(SettingsUnavailable, match="can't be read: No such file"):
        read_policy({"KEYLANE_ACCESS": f"file:{tmp_path}/none.toml"})
    deep = "[access.rules]\nx = " + "[" * 1_000 + "]" * 1_000
    for text, said in (
        ("a = ", "is not valid TOML"),
        ("a = 1", r"has one table, \[access\]"),
        (deep, "is nested too deeply"),
    ):
        (tmp_path / "a.toml").write_text(text)
        with pytest.raises(SettingsError, match=said):
            read_policy({"KEYLANE_ACCESS": f"file:{tmp_path}/a.toml"})


def test_a_line_is_found_by_its_table_and_else_that_of_the_table():
    assert line_of(TOML, ("access", "rules", 1, "where", "tenant")) == 27
    assert line_of(TOML, ("access", "rules", 1, "stamp")) == 23
    assert line_of(TOML, ("access", "rules", 0)) == 13
    assert line_of(TOML, ("access", "nothing")) == 1


def test_a_rule_becomes_what_the_application_takes(tmp_path):
    from keylane.access.policy import scope_of  # noqa: PLC0415

    (tmp_path / "access.toml").write_text(TOML)
    policy = read_policy({"KEYLANE_ACCESS": f"file:{tmp_path}/access.toml"})
    found = scope_of(policy, {"iss": ISSUER, "sub": "ann", "scope": "openid orders", "tenant": ["t1", "t2"]})
    assert found.caller == f"{ISSUER}|ann"
    own = PermittedRows("own", KeyRule("ann/", is_prefix=True), (), ("id", "lines.amount"))
    shared = PermittedRows("rules[1]", None, (("tenant", ("t1", "t2")), ("lines.kind", (1, 2))))
    assert found.rules == (
        ScopeRule(own, ("orders",), ("orders",), (), "x-by"),
        ScopeRule(shared, ("orders",)),
    )
