"""JWTs at the server: verified once, remembered, and never on a path that ignores what they permit."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.fakes import FakeTime
from tests.support.issuers import AUDIENCE, NAME, JwksServer, SigningKey, claims, jwks

from keylane.access.scopes import KeyRule
from keylane.adapters.issuers.verifier import KEYS_TTL_S, RETRY_S
from keylane.errors import IssuerUnavailable, SnapshotOutdated
from keylane.metrics.meter import Meter
from keylane.model.routes import BY_NAME, find
from keylane.wiring.authorizer import POLICY_TTL_S
from keylane_server import access, issued_tokens
from keylane_server.access import NotAllowed, NotAuthorized, TokenAuthorizer
from keylane_server.greenlets import run_request
from keylane_server.received import Access, ReceivedRequest
from keylane_server.refusals import refusal_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from keylane.app.authorizer import Decision

KEY = SigningKey("EdDSA")
LISTED = "a-listed-token-of-these-tests"
OWN = {"name": "own", "issuer": NAME, "read": ["orders"], "key": "${sub}/*"}


def policy(*rules: dict[str, Any], **issuer: Any) -> str:
    given = {"jwks": jwks(KEY)} if "jwks_uri" not in issuer else {}
    known = {"issuer": NAME, "audience": AUDIENCE, "algorithms": ["EdDSA", "ES256"], **given, **issuer}
    digest = hashlib.sha256(LISTED.encode()).hexdigest()
    listed = {"name": "listed", "read": ["orders"]}
    return json.dumps({digest: listed, "issuers": [known], "rules": list(rules) or [OWN]})


class CountedMetrics:
    def __init__(self) -> None:
        self.counts: dict[tuple[str, ...], float] = {}

    def add_number(self, metric: str, labels: tuple[str, ...], value: float) -> None:
        assert metric == "AccessDecisions"
        self.counts[labels] = self.counts.get(labels, 0) + value

    def add_samples(self, *_: Any) -> None: ...
    def flush(self) -> None: ...


class Server:
    """The authorizer of a server, in a loop; `time` is moved by the test and begins now."""

    def __init__(self, text: str, **more: str) -> None:
        self.variables = {"KEYLANE_ACCESS": text, **more}
        self.time = FakeTime()
        self.time.move(time.time() - self.time.clock.now_ms() / 1000)
        self.metrics = CountedMetrics()
        self.executor = ThreadPoolExecutor(1)

    def run(self, test: Callable[[TokenAuthorizer], Coroutine[Any, Any, Any]]) -> None:
        async def run() -> None:
            authorizer = TokenAuthorizer(self.variables, self.time.clock, self.executor, Meter(self.metrics))
            await run_request(authorizer.reload)
            try:
                await test(authorizer)
            finally:
                authorizer.meter.flush()
                authorizer.close()

        asyncio.run(run())

    async def reload(self, authorizer: TokenAuthorizer, text: str) -> None:
        self.variables["KEYLANE_ACCESS"] = text
        self.time.move(POLICY_TTL_S)
        await run_request(authorizer.reload)


def asked(
    token: str, path: str = "/topics/orders/keys/ann%2F1", header: bytes = b"authorization"
) -> ReceivedRequest:
    path, _, query = path.partition("?")
    value = token.encode() if header == b"x-api-key" else b"Bearer " + token.encode()
    scope = {
        "method": "GET",
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), (header, value)],
    }
    request = ReceivedRequest(scope, "request-1")
    request.find_target(request.path)
    return request


def recalled(
    authorizer: TokenAuthorizer, token: str, topic: str = "orders", route: str = "get_key"
) -> Decision | None:
    return authorizer.recall(b"Bearer " + token.encode(), BY_NAME[route], (topic,))


def test_a_listed_token_has_a_scope_where_the_body_names_the_topics():
    async def test(authorizer: TokenAuthorizer) -> None:
        request = asked(LISTED, "/mcp")
        request.target = find("POST", "/mcp")
        found = await authorizer.authorize(request)
        assert found.caller == "listed"
        assert found.scope is not None
        assert [rule.rows.rule for rule in found.scope.rules] == ["listed"]
        request = asked(KEY.token(claims()), "/mcp")
        request.target = find("POST", "/mcp")
        found = await authorizer.authorize(request)
        assert found.scope is not None
        assert [rule.rows.rule for rule in found.scope.rules] == ["own"]

    Server(policy()).run(test)


def test_a_jwt_has_its_scope_and_a_listed_token_has_none():
    async def test(authorizer: TokenAuthorizer) -> None:
        found = await authorizer.authorize(asked(KEY.token(claims())))
        assert found.caller == f"{NAME}|ann"
        assert found.scope is not None
        assert found.scope.reads("orders")[0].key == KeyRule("ann/", is_prefix=True)
        assert await authorizer.authorize(asked(LISTED)) == Access("listed")
        found = await authorizer.authorize(asked(KEY.token(claims()), header=b"x-api-key"))
        assert found.scope is not None

    server = Server(policy())
    server.run(test)
    assert server.metrics.counts == {("own", "allowed"): 2}


@pytest.mark.parametrize(
    "path",
    ["/brokers", "/topics", "/topics/customers/keys/1", "/join/1?topics=orders,customers", "/views/v", "/x"],
)
def test_a_request_that_no_rule_names_is_not_allowed(path):
    async def test(authorizer: TokenAuthorizer) -> None:
        with pytest.raises(NotAllowed):
            await authorizer.authorize(asked(KEY.token(claims()), path))

    server = Server(policy())
    server.run(test)
    assert server.metrics.counts == {(access.NO_RULE, "denied"): 1}


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (KEY.token(claims(exp=1)), "expired"),
        (KEY.token(claims(aud="other")), "audience"),
        (SigningKey("EdDSA").token(claims()), "signature"),
        (KEY.token(claims(), alg="none"), "algorithm"),
        ("a.b.c", "is not base64url"),
        (KEY.token(claims(x="a" * 20_000)), "characters"),
        ("an-unknown-token-of-these-tests", "not known"),
    ],
    ids=["expired", "audience", "signature", "algorithm", "form", "length", "unknown"],
)
def test_a_token_that_is_refused_says_why_and_is_not_remembered(token, said):
    async def test(authorizer: TokenAuthorizer) -> None:
        with pytest.raises(NotAuthorized, match=said):
            await authorizer.authorize(asked(token))
        assert not authorizer._issued._remembered

    Server(policy()).run(test)


def test_a_token_is_verified_once_until_it_expires_or_its_keys_are_due(monkeypatch):
    verified: list[float] = []
    server = Server(policy())

    async def test(authorizer: TokenAuthorizer) -> None:
        verifier = authorizer._issued._verifier
        assert verifier is not None
        verify = verifier.verify
        monkeypatch.setattr(verifier, "verify", lambda *given: verified.append(0) or verify(*given))  # type: ignore[func-returns-value]
        token = KEY.token(claims(exp=time.time() + 1_000))
        for _ in range(3):
            await authorizer.authorize(asked(token))
        assert len(verified) == 1
        server.time.move(KEYS_TTL_S)
        await authorizer.authorize(asked(token))
        assert len(verified) == 2
        server.time.move(1_000 - KEYS_TTL_S + 40)
        with pytest.raises(NotAuthorized, match="expired"):
            await authorizer.authorize(asked(token))

    server.run(test)


def test_what_is_remembered_is_bounded_and_a_long_token_is_not(monkeypatch):
    monkeypatch.setattr(issued_tokens, "REMEMBERED_LIMIT", 3)

    async def test(authorizer: TokenAuthorizer) -> None:
        for number in range(10):
            await authorizer.authorize(asked(KEY.token(claims(jti=number))))
            assert len(authorizer._issued._remembered) == min(3, number + 1)
        before = dict(authorizer._issued._remembered)
        await authorizer.authorize(asked(KEY.token(claims(x="a" * issued_tokens.LONGEST_REMEMBERED))))
        assert authorizer._issued._remembered == before

    Server(policy()).run(test)


def test_what_is_remembered_of_decisions_is_bounded_and_a_refusal_is_none_of_it():
    async def test(authorizer: TokenAuthorizer) -> None:
        token = KEY.token(claims())
        for number in range(100):
            await authorizer.authorize(asked(token, f"/topics/t{number}/keys/1"))
        await authorizer.authorize(asked(token, f"/topics/t{'x' * 400}/keys/1"))
        with pytest.raises(NotAllowed):
            await authorizer.authorize(asked(token, "/topics/other/keys/1"))
        [found] = authorizer._issued._remembered.values()
        assert ("get_key", ("other",)) not in found.decisions
        assert 0 < len(found.decisions) <= issued_tokens.DECISIONS_LIMIT
        assert all(len("".join(names)) < 10 for _, names in found.decisions)
        with pytest.raises(NotAllowed):
            await authorizer.authorize(asked(token, "/topics"))

    Server(policy({"name": "all", "issuer": NAME, "read": ["t*"]})).run(test)


def test_a_remembered_decision_is_one_of_its_route_and_topics_alone():
    rules = (OWN, {"name": "v", "issuer": NAME, "views": ["sums"], "key": "${sub}"})

    async def test(authorizer: TokenAuthorizer) -> None:
        token = KEY.token(claims())
        for _ in range(2):
            await authorizer.authorize(asked(token, "/join/1?topics=orders"))
            with pytest.raises(NotAllowed):
                await authorizer.authorize(asked(token, "/join/1?topics=orders,rates"))
            await authorizer.authorize(asked(token, "/views/sums/keys/ann"))
            with pytest.raises(NotAllowed):
                await authorizer.authorize(asked(token, "/topics/sums/keys/ann"))

    Server(policy(*rules)).run(test)


def test_what_was_decided_on_a_jwt_is_recalled_with_its_rows_for_the_same_route_and_topic_alone():
    server = Server(policy(OWN | {"read": ["orders", "rates"]}))

    async def test(authorizer: TokenAuthorizer) -> None:
        recall = partial(recalled, authorizer)
        token = KEY.token(claims())
        assert recall(token) is None
        decided = await authorizer.authorize(asked(token))
        found = recall(token)
        assert found is not None
        assert found.scope is decided.scope is not None
        assert (recall(token, "rates"), recall(token, route="get_keys"), recall(token + "x")) == (None,) * 3
        listed = recall(LISTED)
        assert listed is not None
        assert listed.scope is None
        assert recall(LISTED, "rates") is None
        server.time.move(KEYS_TTL_S + 1)
        assert recall(token) is None

    server.run(test)


def test_a_changed_policy_changes_what_a_remembered_token_permits_and_the_same_one_keeps_it():
    server = Server(policy())

    async def test(authorizer: TokenAuthorizer) -> None:
        token = KEY.token(claims())
        await authorizer.authorize(asked(token))
        await server.reload(authorizer, policy() + " ")
        assert authorizer._issued._remembered
        await server.reload(authorizer, policy(OWN | {"read": ["rates"]}))
        assert not authorizer._issued._remembered
        with pytest.raises(NotAllowed):
            await authorizer.authorize(asked(token))
        await authorizer.authorize(asked(token, "/topics/rates/keys/ann%2F1"))

    server.run(test)


def test_a_policy_is_read_again_though_nobody_asks(monkeypatch):
    """Else the first request after a quiet night would be decided by the policy of the evening."""
    monkeypatch.setattr(access, "LOOK_S", 0.01)
    server = Server(policy())

    async def test(authorizer: TokenAuthorizer) -> None:
        authorizer.keep_current()
        token = KEY.token(claims(exp=time.time() + 1e6))
        await authorizer.authorize(asked(token))
        before = authorizer._policy
        server.variables["KEYLANE_ACCESS"] = policy(OWN | {"read": ["others"]})
        server.time.move(POLICY_TTL_S)
        for _ in range(1_000):
            await asyncio.sleep(0.01)
            if authorizer._policy is not before:
                break
        with pytest.raises(NotAllowed):
            await authorizer.authorize(asked(token))

    server.run(test)


def test_a_stream_ends_with_its_token_and_when_other_rows_are_permitted():
    server = Server(policy())

    async def test(authorizer: TokenAuthorizer) -> None:
        request = asked(KEY.token(claims(exp=time.time() + 80)), "/topics/orders/changes")
        request.access = await authorizer.authorize(request)
        authorizer.authorize_again(request)
        await server.reload(authorizer, policy(OWN | {"fields": ["id"]}))
        with pytest.raises(NotAllowed):
            authorizer.authorize_again(request)
        await server.reload(authorizer, policy())
        with pytest.raises(NotAuthorized, match="expired"):
            authorizer.authorize_again(request)
        listed = asked(LISTED)
        listed.access = await authorizer.authorize(listed)
        authorizer.authorize_again(listed)

    server.run(test)
    assert server.metrics.counts == {("own", "allowed"): 1}


def test_a_snapshot_to_which_other_rules_apply_now_is_to_be_begun_again():
    """Where the token permits none of it any more, another would be refused."""
    server = Server(policy())

    async def test(authorizer: TokenAuthorizer) -> None:
        request = asked(KEY.token(claims(exp=time.time() + 1e6)), "/topics/orders/snapshot")
        request.access = await authorizer.authorize(request)
        for rule, error in ((OWN | {"key": "${sub}"}, SnapshotOutdated), (OWN | {"read": ["x"]}, NotAllowed)):
            await server.reload(authorizer, policy(rule))
            with pytest.raises(error) as raised:
                authorizer.authorize_again(request)
            refused = refusal_of(raised.value, "request-1")
            assert (refused.status_code, refused.problem) == (
                (409, "snapshot-outdated") if error is SnapshotOutdated else (403, "forbidden")
            )

    server.run(test)


def test_a_policy_with_true_for_1_is_another_policy_and_permits_other_rows():
    """For Python true is 1, and 1 is 1.0: a policy that was mended so would never count."""

    def changed(**part: Any) -> str:
        return policy({"name": "own", "issuer": NAME, "read": ["orders"], **part})

    server = Server(changed(when={"admin": 1}))

    async def test(authorizer: TokenAuthorizer) -> None:
        request = asked(KEY.token(claims(exp=time.time() + 1e6, admin=1)), "/topics/orders/changes")
        await authorizer.authorize(request)
        await server.reload(authorizer, changed(when={"admin": True}))
        with pytest.raises(NotAllowed):
            await authorizer.authorize(request)
        await server.reload(authorizer, changed(where={"done": 1}))
        request.access = await authorizer.authorize(request)
        authorizer.authorize_again(request)
        await server.reload(authorizer, changed(where={"done": True}))
        with pytest.raises(NotAllowed):
            authorizer.authorize_again(request)

    server.run(test)


def test_keys_are_fetched_once_for_all_who_wait_and_once_a_minute_for_strangers():
    with JwksServer(KEY) as issuer:
        server = Server(policy(jwks_uri=issuer.uri))

        async def test(authorizer: TokenAuthorizer) -> None:
            token = KEY.token(claims(exp=time.time() + 1e6))
            await asyncio.gather(*(authorizer.authorize(asked(token)) for _ in range(20)))
            assert recalled(authorizer, token) is not None
            assert issuer.asked == 1
            other = SigningKey("ES256", "key-2")
            for _ in range(5):
                with pytest.raises(NotAuthorized, match="kid"):
                    await authorizer.authorize(asked(other.token(claims(exp=time.time() + 1e6))))
            assert issuer.asked == 1
            issuer.publish(other)
            server.time.move(RETRY_S)
            await authorizer.authorize(asked(other.token(claims(exp=time.time() + 1e6))))
            assert issuer.asked == 2
            # It was remembered, and its key was withdrawn.
            assert recalled(authorizer, token) is None
            with pytest.raises(NotAuthorized, match="kid"):
                await authorizer.authorize(asked(token))

        server.run(test)


def test_a_withdrawn_key_is_forgotten_when_keys_are_due_whenever_its_token_was_verified():
    with JwksServer(KEY) as issuer:
        server = Server(policy(jwks_uri=issuer.uri))

        async def test(authorizer: TokenAuthorizer) -> None:
            early, late = (KEY.token(claims(exp=time.time() + 1e6, jti=each)) for each in "12")
            await authorizer.authorize(asked(early))
            server.time.move(KEYS_TTL_S - 1)
            await authorizer.authorize(asked(late))
            assert recalled(authorizer, late) is not None
            issuer.publish(SigningKey("ES256", "key-2"))
            server.time.move(1)
            assert recalled(authorizer, late) is None
            with pytest.raises(NotAuthorized, match="kid"):
                await authorizer.authorize(asked(late))

        server.run(test)


def test_an_issuer_that_is_away_is_503_at_first_and_later_its_last_keys_count():
    issuer = JwksServer(KEY)
    server = Server(policy(jwks_uri=issuer.uri))

    async def test(authorizer: TokenAuthorizer) -> None:
        issuer.status = 500
        for _ in range(3):
            with pytest.raises(IssuerUnavailable):
                await authorizer.authorize(asked(KEY.token(claims())))
        assert issuer.asked == 1
        issuer.status = 200
        server.time.move(RETRY_S)
        token = KEY.token(claims(exp=time.time() + 1e6))
        await authorizer.authorize(asked(token))
        issuer.close()
        request = asked(token, "/topics/orders/changes")
        request.access = await authorizer.authorize(request)
        for after_s in (KEYS_TTL_S, KEYS_TTL_S, 80_000):
            server.time.move(after_s)
            authorizer.authorize_again(request)  # which has keys fetched, and does not wait for them
            await authorizer.authorize(asked(token))
        server.time.move(86_400)
        for _ in range(2):
            with pytest.raises(IssuerUnavailable):
                await authorizer.authorize(asked(token))

    server.run(test)


def test_the_last_keys_count_while_the_issuers_name_can_t_be_resolved(monkeypatch):
    """Which no timeout ends: the fetch goes on, and nobody waits for it longer than for any other."""
    resolved, asking = threading.Event(), threading.Event()

    def fetch(*_: Any) -> None:
        asking.set()
        resolved.wait(60)

    async def test(authorizer: TokenAuthorizer) -> None:
        token = KEY.token(claims(exp=time.time() + 1e6))
        await authorizer.authorize(asked(token))
        server.time.move(KEYS_TTL_S)
        monkeypatch.setattr(issued_tokens, "fetch_or_log", fetch)
        monkeypatch.setattr(issued_tokens, "KEYS_WAIT_S", 0.1)
        try:
            for moved_s in (0, RETRY_S, 2 * RETRY_S):
                server.time.move(moved_s)
                await asyncio.wait_for(authorizer.authorize(asked(token)), 30)
                assert asking.is_set()
            with pytest.raises(NotAuthorized, match="kid"):
                await authorizer.authorize(asked(SigningKey("ES256", "key-2").token(claims())))
        finally:
            resolved.set()

    with JwksServer(KEY) as issuer:
        server = Server(policy(jwks_uri=issuer.uri))
        server.run(test)


def test_an_audit_line_is_one_for_each_request(caplog):
    caplog.set_level("INFO", "keylane.audit")
    server = Server(policy(), KEYLANE_ACCESS_AUDIT="true")

    async def test(authorizer: TokenAuthorizer) -> None:
        assert authorizer.is_audited
        await authorizer.authorize(asked(KEY.token(claims())))
        await authorizer.authorize(asked(LISTED))

    server.run(test)
    lines = [json.loads(each.getMessage()) for each in caplog.records if each.name == "keylane.audit"]
    assert [(line["caller"], line["rules"], line["result"]) for line in lines] == [
        (f"{NAME}|ann", ["own"], "allowed"),
        ("listed", [], "allowed"),
    ]
    assert "ann%2F1" not in caplog.text
