"""Tokens of issuers: what is verified, and every way in which one is refused."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.issuers import AUDIENCE, NAME, JwksServer, SigningKey, encoded, jwks

from keylane.access.policy import Issuer, Policy
from keylane.access.tokens import LONGEST_TOKEN, BadToken, jwt_in
from keylane.adapters.issuers.jwk import read_jwks
from keylane.adapters.issuers.jwks_http import BODY_LIMIT_BYTES, fetch_keys
from keylane.adapters.issuers.signatures import SIGNATURES, is_signed
from keylane.adapters.issuers.verifier import KEYS_TTL_S, RETRY_S, KeysNeeded, TokenVerifier
from keylane.config.access_rules import ALGORITHMS
from keylane.errors import IssuerUnavailable
from keylane.ports import Clock

NOW_S = 1_800_000_000.0
KEY = SigningKey("ES256")
CLAIMS: dict[str, Any] = {"iss": NAME, "aud": AUDIENCE, "sub": "ann", "exp": NOW_S + 60}


class Verified:
    """A verifier of one issuer with keys in the policy, at a time that tests move."""

    def __init__(self, *keys: SigningKey, uri: str | None = None, **more: Any) -> None:
        given = None if uri else json.dumps(jwks(*(keys or (KEY,))))
        fields = {"audience": (AUDIENCE,), "algorithms": ALGORITHMS, **more}
        self.issuer = Issuer(NAME, jwks_uri=uri, jwks=given, **fields)
        self.policy = Policy(issuers=(self.issuer,))
        self.now_s = NOW_S
        self.verifier = TokenVerifier(lambda: self.now_s)
        self.verifier.use(self.policy.issuers)

    def claims_of(self, token: str) -> dict[str, Any]:
        return dict(self.verifier.verify(self.policy, token).claims)

    def refusal_of(self, token: str) -> str:
        with pytest.raises(BadToken) as raised:
            self.verifier.verify(self.policy, token)
        return str(raised.value)

    def fetched(self, *keys: SigningKey) -> bool:
        assert self.verifier.begin_fetch(self.issuer)
        made = read_jwks(json.dumps(jwks(*keys)).encode()) if keys else None
        return self.verifier.end_fetch(self.issuer, made)


@pytest.fixture(scope="module")
def rsa_key() -> SigningKey:
    return SigningKey("RS256", "rsa")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_of_each_algorithm_is_verified_and_a_changed_one_is_not(algorithm, rsa_key):
    key = SigningKey(algorithm) if algorithm[:2] not in {"RS", "PS"} else rsa_key
    key.algorithm = algorithm
    token, known = key.token(CLAIMS), Verified(key)
    assert known.claims_of(token) == CLAIMS
    head, _, signature = token.split(".")
    changed = encoded(json.dumps(CLAIMS | {"sub": "bob"}).encode())
    assert "signature" in known.refusal_of(f"{head}.{changed}.{signature}")
    bad = bytearray(base64.urlsafe_b64decode(signature + "=="))
    bad[5] ^= 1
    for other in (
        encoded(bytes(bad)),
        encoded(bytes(bad[:-1])),
        encoded(bytes(bad) + b"\0"),
        "",
        encoded(b"\0"),
    ):
        assert "signature" in known.refusal_of(f"{head}.{token.split('.')[1]}.{other}")
    assert "signature" in Verified(SigningKey(algorithm, key.key_id)).refusal_of(token)


def test_a_signature_on_a_curve_has_one_length():
    head, body, signature = KEY.token(CLAIMS).split(".")
    made = base64.urlsafe_b64decode(signature + "==")
    for other in (made[:32] + b"\0" + made[32:], b"\0" + made[:32] + b"\0" + made[32:]):
        assert "signature" in Verified().refusal_of(f"{head}.{body}.{encoded(other)}")


def test_the_policys_algorithms_are_those_that_can_be_verified():
    assert set(ALGORITHMS) == set(SIGNATURES)


@pytest.mark.parametrize(
    ("jwk", "token"),
    [
        (
            {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
            (
                "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWb"
                "hijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
            ),
        ),
        (
            {
                "kty": "EC",
                "crv": "P-256",
                "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
                "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
            },
            (
                "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb2"
                "90Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
            ),
        ),
    ],
    ids=["RFC 8037, A.4", "RFC 7515, A.3"],
)
def test_the_examples_of_the_standards_are_verified(jwk, token):
    [key] = read_jwks(json.dumps({"keys": [jwk]}).encode())
    head, body, signature = token.split(".")
    algorithm = json.loads(base64.urlsafe_b64decode(head + "=="))["alg"]
    made = base64.urlsafe_b64decode(signature + "==")
    assert is_signed(key, algorithm, made, f"{head}.{body}".encode())
    assert not is_signed(key, algorithm, made, f"{head}.{body}x".encode())


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "HS256", "RS1", "ES256K", None, 1])
def test_an_algorithm_that_the_policy_does_not_name_is_refused(algorithm):
    assert "algorithm" in Verified().refusal_of(KEY.token(CLAIMS, alg=algorithm))
    unsigned = KEY.token(CLAIMS, alg=algorithm).rpartition(".")[0] + "."
    assert "algorithm" in Verified().refusal_of(unsigned)
    assert jwt_in(f"Bearer {unsigned}") == unsigned


def test_an_hmac_with_the_public_key_is_refused(rsa_key):
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

    public = rsa_key.private.public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = rsa_key.token(CLAIMS, alg="HS256").rpartition(".")[0]
    token = f"{signed}.{encoded(hmac.digest(pem, signed.encode(), 'sha256'))}"
    assert "algorithm" in Verified(rsa_key).refusal_of(token)
    assert "algorithm" in Verified(rsa_key, algorithms=("RS256",)).refusal_of(
        rsa_key.token(CLAIMS, alg="PS256")
    )


def test_an_algorithm_takes_no_key_of_another_kind(rsa_key):
    assert "none of its issuer's" in Verified(rsa_key).refusal_of(KEY.token(CLAIMS, kid="rsa"))
    other = SigningKey("ES384", "key-1")
    assert "none of its issuer's" in Verified(other).refusal_of(KEY.token(CLAIMS))


@pytest.mark.parametrize("name", ["jku", "x5u", "jwk", "x5c", "x5t"])
def test_a_key_that_the_token_brings_is_ignored(name):
    thief = SigningKey("ES256", "key-1")
    brought = {"jku": "http://127.0.0.1:1/", "x5u": "http://127.0.0.1:1/", "jwk": thief.jwk}.get(name, ["AA"])
    assert "signature" in Verified().refusal_of(thief.token(CLAIMS, **{name: brought}))
    assert Verified().claims_of(KEY.token(CLAIMS, **{name: brought})) == CLAIMS


@pytest.mark.parametrize(
    "kid", ["../../dev/null", "/etc/passwd", "' OR 1=1", "key-1\0", "KEY-1", "", "k" * 1_025, 1]
)
def test_a_kid_is_compared_and_nothing_else(kid):
    assert "kid" in Verified().refusal_of(KEY.token(CLAIMS, kid=kid))


def test_without_a_kid_the_issuers_only_key_of_the_algorithm_is_meant():
    assert Verified().claims_of(KEY.token(CLAIMS, kid=None)) == CLAIMS
    others = SigningKey("ES256", "key-2"), SigningKey("EdDSA", "key-3")
    assert "has several" in Verified(KEY, *others).refusal_of(KEY.token(CLAIMS, kid=None))
    assert Verified(KEY, others[1]).claims_of(KEY.token(CLAIMS, kid=None)) == CLAIMS


def test_a_kid_that_several_keys_of_the_issuer_have_is_named_as_the_fault():
    twin = SigningKey("ES256", "key-1")
    refusal = Verified(KEY, twin).refusal_of(KEY.token(CLAIMS))
    assert "several keys of the token's issuer have its name (kid)" in refusal


@pytest.mark.parametrize(
    "header",
    [{"crit": ["exp"]}, {"crit": []}, {"crit": ["b64"], "b64": False}, {"b64": False}, {"b64": True}],
)
def test_a_critical_header_is_refused(header):
    assert "crit" in Verified().refusal_of(KEY.token(CLAIMS, **header))


@pytest.mark.parametrize("kind", ["logout+jwt", "dpop+jwt", "JWS", 1])
def test_a_token_of_another_type_is_refused(kind):
    assert "typ" in Verified().refusal_of(KEY.token(CLAIMS, typ=kind))


@pytest.mark.parametrize("kind", ["jwt", "JWT", "at+jwt", "application/at+jwt", None])
def test_a_token_of_access_may_say_so(kind):
    assert Verified().claims_of(KEY.token(CLAIMS, typ=kind)) == CLAIMS


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"aud": "https://other.example.org"}, "another audience"),
        ({"aud": [AUDIENCE + "/"]}, "another audience"),
        ({"aud": AUDIENCE.upper()}, "another audience"),
        ({"aud": {AUDIENCE: 1}}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"iss": "https://id.example.org"}, "issuer that is not known"),
        ({"iss": [NAME]}, "issuer that is not known"),
        ({"iss": None}, "issuer that is not known"),
        ({"exp": NOW_S - 30}, "expired"),
        ({"exp": None}, "exp is not a time"),
        ({"exp": str(NOW_S + 60)}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": -1}, "exp is not a time"),
        ({"exp": 1e300}, "exp is not a time"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"nbf": "0"}, "nbf is not a time"),
        ({"sub": ""}, "no subject"),
        ({"sub": 7}, "no subject"),
        ({"sub": None}, "no subject"),
        ({"sub": "a" * 256}, "no subject"),
        ({"sub": "\ud800"}, "no subject"),
        ({"cnf": {"jkt": "x"}}, "bound to a key"),
    ],
)
def test_claims_that_are_wrong_are_refused(changed, said):
    assert said in Verified().refusal_of(KEY.token(CLAIMS | changed))


def test_a_token_without_an_expiry_is_refused():
    without = {name: each for name, each in CLAIMS.items() if name != "exp"}
    assert "no expiry" in Verified().refusal_of(KEY.token(without))


@pytest.mark.parametrize("sub", ["a/b", "*", "%2F", "a\0b", "e\u0301", "é", "Ann", " ", "a" * 255])
def test_an_odd_subject_stays_as_it_is(sub):
    assert Verified().claims_of(KEY.token(CLAIMS | {"sub": sub}))["sub"] == sub


def test_clocks_may_differ_by_the_leeway():
    known = Verified(leeway_s=5)
    token = KEY.token(CLAIMS | {"nbf": NOW_S})
    for moved, is_accepted in ((-6, False), (-5, True), (64, True), (65, False)):
        known.now_s = NOW_S + moved
        if is_accepted:
            assert known.verifier.verify(known.policy, token).expires_s == NOW_S + 65
        else:
            assert known.refusal_of(token) in {"the token has expired", "the token is not valid yet"}


@pytest.mark.parametrize(
    "text",
    [
        '{"iss": "https://id.example.org/", "sub": "ann", "sub": "bob"}',
        '{"sub": "ann", "a": [{"b": 1, "b": 2}]}',
        '{"exp": NaN}',
        '{"exp": Infinity}',
        '{"exp": 1e999}',
        '{"exp": ' + "9" * 5_000 + "}",
        "[1]",
        '"text"',
        "",
        "{",
        "[" * 5_000,
        '{"a": ' * 1_500,
    ],
)
def test_claims_that_are_no_plain_json_object_are_refused(text):
    assert "claims" in Verified().refusal_of(KEY.token(text))


def test_a_header_with_a_name_twice_is_refused():
    head = encoded(b'{"alg": "none", "alg": "ES256", "kid": "key-1"}')
    signed = f"{head}.{encoded(json.dumps(CLAIMS).encode())}"
    token = f"{signed}.{encoded(KEY.sign(signed.encode()))}"
    assert "header" in Verified().refusal_of(token)


def test_base64_has_one_rendering():
    known, token = Verified(), KEY.token(CLAIMS)
    head, body, signature = token.split(".")
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = last[last.index(signature[-1]) | 1]
    assert other != signature[-1]
    assert "base64url" in known.refusal_of(f"{head}.{body}.{signature[:-1]}{other}")
    assert "header can't be read" in known.refusal_of(f"{head}A.{body}.{signature}")


def test_a_token_over_16_kib_is_refused_before_it_is_read():
    token = KEY.token(CLAIMS | {"x": "a" * LONGEST_TOKEN})
    assert "more than 16,384 characters" in Verified().refusal_of(token)
    assert Verified().claims_of(KEY.token(CLAIMS | {"x": "a" * 8_000}))["sub"] == "ann"


@given(st.data())
def test_no_changed_token_is_accepted(data):
    """Any character of a valid token replaced by any other: the token is refused."""
    token = _TOKEN
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("ABCabc012-_.").filter(lambda each: each != token[at]))
    changed = token[:at] + other + token[at + 1 :]
    if changed.count(".") == 2:
        _KNOWN.refusal_of(changed)


_KNOWN, _TOKEN = Verified(), KEY.token(CLAIMS)


@pytest.mark.parametrize(
    "text", ["a.b.c", "Bearer a.b", "Bearer a.b.c.d", "Bearer a.b.c=", "Basic a.b.c", "Bearer .."]
)
def test_what_is_no_jwt_is_none(text):
    assert jwt_in(text) is None


def test_keys_that_cannot_verify_are_left_out_of_what_an_issuer_publishes(rsa_key):
    weak = {"kty": "RSA", "n": encoded((1 << 1023 | 1).to_bytes(128)), "e": "AQAB"}
    given = [{"kty": "oct", "k": "AA"}, weak, 7, {"kty": "EC", "crv": "secp256k1"}, KEY.jwk | {"x": "AA"}]
    found = read_jwks(json.dumps({"keys": [*given, KEY.jwk, {**rsa_key.jwk, "key_ops": 5}]}).encode())
    assert [each.key_id for each in found] == ["key-1"]
    for text in (b"", b"{}", b"[]", b'{"keys": 1}'):
        with pytest.raises(ValueError, match=r".+"):
            read_jwks(text)
    with pytest.raises(ValueError, match="up to 100"):
        read_jwks(json.dumps({"keys": [KEY.jwk] * 101}).encode())


@pytest.mark.parametrize("others", [[], [KEY.jwk | {"use": "enc"}], [{"kty": "OKP", "crv": "Ed448"}]])
def test_an_issuer_withdraws_its_last_key_as_any_other(others):
    with JwksServer(KEY) as server:
        known = Verified(uri=server.uri)
        assert known.verifier.begin_fetch(known.issuer)
        known.verifier.end_fetch(known.issuer, fetch_keys(known.issuer, Clock()))
        token = KEY.token(CLAIMS | {"exp": NOW_S + 1e6})
        assert known.claims_of(token)
        server.body = json.dumps({"keys": others}).encode()
        known.now_s += KEYS_TTL_S
        assert known.verifier.begin_fetch(known.issuer)
        assert known.verifier.end_fetch(known.issuer, fetch_keys(known.issuer, Clock()))
    assert "kid" in known.refusal_of(token)


def test_keys_are_fetched_first_and_then_at_most_once_a_minute_whatever_tokens_name():
    known, other = Verified(uri="http://127.0.0.1:1/"), SigningKey("ES256", "key-2")
    with pytest.raises(KeysNeeded):
        known.claims_of(KEY.token(CLAIMS))
    assert known.fetched(KEY)
    assert known.claims_of(KEY.token(CLAIMS)) == CLAIMS
    for kid in ("a", "b", "key-2"):
        assert "kid" in known.refusal_of(other.token(CLAIMS, kid=kid))
    assert not known.verifier.begin_fetch(known.issuer)
    known.now_s += RETRY_S
    longer = CLAIMS | {"exp": NOW_S + 1e6}
    with pytest.raises(KeysNeeded):
        known.claims_of(other.token(longer))
    assert known.fetched(KEY, other)
    assert known.claims_of(other.token(longer)) == longer
    assert known.claims_of(KEY.token(longer)) == longer


def test_a_withdrawn_key_is_refused_once_keys_are_fetched_again():
    known = Verified(uri="http://127.0.0.1:1/")
    token = KEY.token(CLAIMS | {"exp": NOW_S + 1e6})
    known.fetched(KEY)
    known.now_s += KEYS_TTL_S - 1
    assert known.claims_of(token)
    known.now_s += 1
    with pytest.raises(KeysNeeded):
        known.claims_of(token)
    assert known.fetched(SigningKey("ES256", "key-2"))
    assert "kid" in known.refusal_of(token)


def test_the_last_keys_are_used_for_a_bounded_time_while_the_issuer_is_away():
    known = Verified(uri="http://127.0.0.1:1/", keys_max_age_s=86_400)
    token = KEY.token(CLAIMS | {"exp": NOW_S + 1e6})
    known.fetched(KEY)
    for after_s in (KEYS_TTL_S, 3_600, 86_399):
        known.now_s = NOW_S + after_s
        assert not known.fetched()
        assert known.claims_of(token)
    known.now_s = NOW_S + 86_400 + RETRY_S
    assert not known.fetched()
    with pytest.raises(IssuerUnavailable):
        known.claims_of(token)
    known.now_s += RETRY_S
    known.fetched(KEY)
    assert known.claims_of(token)


def test_while_keys_are_fetched_nobody_fetches_them_again_and_who_needs_them_waits():
    known = Verified(uri="http://127.0.0.1:1/")
    assert known.verifier.begin_fetch(known.issuer)
    assert not known.verifier.begin_fetch(known.issuer)
    with pytest.raises(KeysNeeded):
        known.claims_of(KEY.token(CLAIMS))
    known.verifier.end_fetch(known.issuer, None)
    with pytest.raises(IssuerUnavailable):
        known.claims_of(KEY.token(CLAIMS))


def test_keys_in_the_policy_are_never_fetched():
    known = Verified()
    assert not known.verifier.begin_fetch(known.issuer)
    known.now_s += 1e9
    assert "expired" in known.refusal_of(KEY.token(CLAIMS))


def issuer_at(uri: str) -> Issuer:
    return Issuer(NAME, (AUDIENCE,), ("ES256",), jwks_uri=uri)


def test_keys_are_fetched_over_http_within_bounds():
    with JwksServer(KEY) as server:
        assert [each.key_id for each in fetch_keys(issuer_at(server.uri), Clock())] == ["key-1"]
        server.status, server.headers = 302, {"Location": "http://127.0.0.1:1/"}
        with pytest.raises(IssuerUnavailable) as raised:
            fetch_keys(issuer_at(server.uri), Clock())
        assert "status 302" in str(raised.value.__cause__)
        server.status, server.headers = 200, {}
        server.body = b" " * (BODY_LIMIT_BYTES + 1)
        with pytest.raises(IssuerUnavailable) as raised:
            fetch_keys(issuer_at(server.uri), Clock())
        assert "more than" in str(raised.value.__cause__)
        server.body = b"<html>"
        with pytest.raises(IssuerUnavailable):
            fetch_keys(issuer_at(server.uri), Clock())
        uri = server.uri
    with pytest.raises(IssuerUnavailable):
        fetch_keys(issuer_at(uri), Clock())
