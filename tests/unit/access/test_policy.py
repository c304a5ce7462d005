"""What claims permit: rules with claims in their places, as a scope that no claim can widen."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.access.policy import AccessRule, Policy, caller_name, scope_of, why_not
from keylane.access.scope_codec import decode_scope, encode_scope
from keylane.access.scopes import KeyRule, PermittedRows, Scope, ScopeRule
from keylane.config.access_rules import rule_of

ISSUER = "https://id.example.org/"
ODD = st.text(st.sampled_from("ab/*%2F\0\u0301éÉ|.${} \ud800"), max_size=6)
VALUES = st.none() | st.booleans() | st.integers(-2, 2) | ODD | st.lists(ODD | st.integers(), max_size=3)


def rule(**parts: Any) -> AccessRule:
    return rule_of(0, {"issuer": ISSUER, "read": ["orders"], **parts}, [ISSUER])


def rows_of(made: AccessRule, **claims: Any) -> tuple[PermittedRows, ...]:
    return scope_of(Policy(rules=(made,)), {"iss": ISSUER, "sub": "ann", **claims}).reads("orders")


def key_of(made: AccessRule, **claims: Any) -> KeyRule | None:
    found = rows_of(made, **claims)
    return found[0].key if found else None


def test_a_rule_of_another_issuer_permits_nothing():
    made = rule()._replace(issuer="https://other.example.org/")
    assert rows_of(made) == ()


def test_several_rules_add_up():
    rules = (rule(name="own", key="${sub}"), rule(name="shared", where={"tenant": "${tenant}"}))
    found = scope_of(Policy(rules=rules), {"iss": ISSUER, "sub": "ann", "tenant": "t1"})
    assert [rows.rule for rows in found.reads("orders")] == ["own", "shared"]
    assert found.reads("invoices") == ()


def test_the_subject_is_a_key_or_what_keys_begin_with():
    assert key_of(rule(key="${sub}")) == KeyRule("ann")
    assert key_of(rule(key="${sub}/*")) == KeyRule("ann/", is_prefix=True)
    assert key_of(rule(key="user-${sub}-*")) == KeyRule("user-ann-", is_prefix=True)


@pytest.mark.parametrize("sub", ["*", "a*", "%2F", "a%2Fb", "A", "a\0b", "e\u0301", "é", "${sub}", ".*"])
def test_what_means_something_elsewhere_is_taken_literally(sub):
    assert key_of(rule(key="${sub}"), sub=sub) == KeyRule(sub)
    assert key_of(rule(key="${sub}/*"), sub=sub) == KeyRule(f"{sub}/", is_prefix=True)


@pytest.mark.parametrize("sub", ["ann/x", "/", "ann/"])
def test_a_claim_with_the_text_that_follows_it_matches_nothing(sub):
    assert rows_of(rule(key="${sub}/*"), sub=sub) == ()
    assert key_of(rule(key="${sub}"), sub=sub) == KeyRule(sub)


@pytest.mark.parametrize("tenant", ["", None, 1, True, 1.5, ["t1"], {"a": 1}, "\ud800"])
def test_a_key_of_a_claim_that_is_missing_empty_or_no_string_is_no_key(tenant):
    assert rows_of(rule(key="${tenant}/*"), tenant=tenant) == ()
    assert rows_of(rule(key="${tenant}/*")) == ()


@pytest.mark.parametrize(
    ("tenant", "values"),
    [
        ("t1", ("t1",)),
        (7, (7,)),
        (True, (True,)),
        (["t1", "t2"], ("t1", "t2")),
        (["t1", "", None, {"a": 1}, ["t9"]], ("t1",)),
        ("t1 t2", ("t1 t2",)),
    ],
)
def test_a_condition_has_the_claims_value_in_its_type_or_any_of_a_list(tenant, values):
    [found] = rows_of(rule(where={"tenant": "${tenant}"}), tenant=tenant)
    assert found.where == (("tenant", values),)


@pytest.mark.parametrize("tenant", ["", None, [], [""], [None, {}], {"a": 1}, "\udfff"])
def test_a_condition_on_a_claim_without_a_usable_value_permits_nothing(tenant):
    made = rule(where={"tenant": "${tenant}", "open": True})
    assert rows_of(made, tenant=tenant) == ()
    assert rows_of(made) == ()
    assert "tenant" in why_not(made, {"iss": ISSUER, "sub": "ann", "tenant": tenant})


def test_a_condition_has_constants_and_texts_with_claims_too():
    made = rule(where={"status": ["open", "new"], "owner": "user:${sub}", "paid": False, "lines.kind": 3})
    [found] = rows_of(made)
    wanted = {"status": ("open", "new"), "owner": ("user:ann",), "paid": (False,), "lines.kind": (3,)}
    assert dict(found.where) == wanted


@pytest.mark.parametrize(
    ("when", "claims", "applies"),
    [
        ({"scope": "orders"}, {"scope": "profile orders"}, True),
        ({"scope": "orders"}, {"scope": "orders.read myorders"}, False),
        ({"scope": "orders"}, {"scope": ["orders"]}, True),
        ({"role": "admin"}, {"role": ["user", "admin"]}, True),
        ({"role": "admin"}, {"role": "user admin"}, False),
        ({"role": "admin"}, {"role": "Admin"}, False),
        ({"role": "admin"}, {}, False),
        ({"level": 1}, {"level": True}, False),
        ({"level": 1}, {"level": "1"}, False),
        ({"ok": True}, {"ok": 1}, False),
        ({"ok": True}, {"ok": True}, True),
        ({"realm.roles": "a"}, {"realm": {"roles": ["a"]}}, True),
        ({"https://e.org/role": "a"}, {"https://e.org/role": "a"}, True),
        ({"a": "1", "b": "2"}, {"a": "1"}, False),
    ],
)
def test_a_rule_applies_when_all_of_its_claims_are_so(when, claims, applies):
    assert bool(rows_of(rule(when=when), **claims)) == applies
    assert (not why_not(rule(when=when), {"iss": ISSUER, "sub": "ann", **claims})) == applies


@given(sub=ODD, other=ODD)
def test_no_two_subjects_share_a_key_or_the_beginning_of_one(sub, other):
    made = rule(key="u-${who}/*")
    one, two = key_of(made, who=sub), key_of(made, who=other)
    if one and two and sub != other:
        assert not one.text.startswith(two.text)
        assert not two.text.startswith(one.text)


@given(tenant=ODD, sub=ODD, other_tenant=ODD, other=ODD)
def test_no_two_pairs_of_claims_share_a_key(tenant, sub, other_tenant, other):
    made = rule(key="${tenant}/${who}")
    one, two = key_of(made, tenant=tenant, who=sub), key_of(made, tenant=other_tenant, who=other)
    if one is not None and one == two:
        assert (tenant, sub) == (other_tenant, other)


@given(claims=st.dictionaries(st.sampled_from(["tenant", "role", "who"]), VALUES))
def test_no_claim_makes_a_rule_wider_than_with_another_value(claims):
    """Whatever the claims: a rule with a key has one, with a condition has it, and its patterns stay."""
    made = rule(key="${who}/*", where={"tenant": "${tenant}"}, fields=["id"], when={"role": "a"})
    found = scope_of(Policy(rules=(made,)), {"iss": ISSUER, "sub": "ann", **claims})
    for each in found.rules:
        assert each.rows.key is not None
        assert each.rows.key.text.endswith("/")
        assert len(each.rows.key.text) > 1
        [(name, values)] = each.rows.where
        assert name == "tenant"
        assert values
        assert all(value != "" for value in values)
        assert (each.read, each.write, each.views, each.rows.fields) == (("orders",), (), (), ("id",))
    assert (not found.rules) == bool(why_not(made, {"iss": ISSUER, "sub": "ann", **claims}))


@given(one=st.text(min_size=1, max_size=5), two=st.text(min_size=1, max_size=5))
def test_no_two_callers_share_a_name(one, two):
    names = [caller_name({"iss": ISSUER, "sub": each}) for each in (one, two)]
    assert (names[0] == names[1]) == (one == two)
    assert all(name.isprintable() and name.isascii() for name in names)


PIECES = st.text(st.sampled_from(string.ascii_letters + '/*"\\\0é'), max_size=5)
ROWS = st.builds(
    PermittedRows,
    PIECES,
    st.none() | st.builds(KeyRule, PIECES, st.booleans()),
    st.lists(
        st.tuples(
            PIECES,
            st.lists(PIECES | st.integers() | st.booleans() | st.floats(-1e9, 1e9), max_size=3).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    st.none() | st.lists(PIECES, max_size=3).map(tuple),
)
TEXTS = st.lists(PIECES, max_size=2).map(tuple)
SCOPES = st.builds(
    Scope,
    PIECES,
    st.lists(st.builds(ScopeRule, ROWS, TEXTS, TEXTS, TEXTS, st.none() | PIECES), max_size=3).map(tuple),
)


@given(SCOPES)
def test_a_scope_is_the_same_after_its_way_as_text(scope):
    text = encode_scope(scope)
    assert text.isascii()
    assert text.isprintable()
    assert decode_scope(text) == scope


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"v":2,"caller":"a","rules":[]}',
        '{"v":1,"caller":"a"}',
        '{"v":1,"caller":"a","rules":[{}]}',
        '{"v":1,"caller":"a","rules":[{"rule":"r","read":"orders"}]}',
        '{"v":1,"caller":"a","rules":[{"rule":"r","reads":["orders"]}]}',
        '{"v":1,"caller":"a","rules":[{"rule":"r","key":["a"]}]}',
        '{"v": 1, "caller": "a", "rules": []}',
        "[" * 100_000,
    ],
)
def test_a_text_that_is_no_scope_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        decode_scope(text)


def test_golden_text_of_a_scope():
    rows = PermittedRows("own", KeyRule("ann/", is_prefix=True), (("tenant", ("t1", 7)),), ("id",))
    scope = Scope("https://id.example.org/|ann", (ScopeRule(rows, ("orders",), ("orders",), (), "x-by"),))
    assert json.loads(encode_scope(scope)) == {
        "v": 1,
        "caller": "https://id.example.org/|ann",
        "rules": [
            {
                "rule": "own",
                "key": ["ann/", True],
                "where": [["tenant", ["t1", 7]]],
                "fields": ["id"],
                "read": ["orders"],
                "write": ["orders"],
                "stamp": "x-by",
            }
        ],
    }
