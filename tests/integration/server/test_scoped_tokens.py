"""JWTs in a process of the server: who is let through, and that no path ignores what a token permits."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import closing
from itertools import cycle
from threading import Timer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from tests.servers.own import fill
from tests.support.agents import JSON, a_message
from tests.support.builders import NOW_MS, a_lane, a_layout, entries_of, load_handler, value_key
from tests.support.issuers import AUDIENCE, NAME, JwksServer, SigningKey, claims, jwks
from tests.support.server_process import OTHER_WAY, Process

from keylane.access.scope_codec import CONTEXT_NAME, decode_scope
from keylane.api.http.request import Request
from keylane.app import query
from keylane.model.records import Options
from keylane.state.codec import LeftInKafka, encode_record
from keylane.wiring.runtime import Runtime
from keylane_server.options import TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.served import Served

KEY = SigningKey("RS256")
LISTED = "a-listed-token-of-these-tests"


@pytest.fixture(scope="module")
def issuer() -> Iterator[JwksServer]:
    with JwksServer(KEY) as running:
        yield running


@pytest.fixture(scope="module")
def process(variables: dict[str, str], topic: str, issuer: JwksServer) -> Iterator[Process]:
    known = {"issuer": NAME, "audience": AUDIENCE, "algorithms": ["RS256"], "jwks_uri": issuer.uri}
    rule = {"name": "own", "issuer": NAME, "read": [topic], "key": "${sub}/*"}
    listed = {hashlib.sha256(LISTED.encode()).hexdigest(): {"name": "listed", "read": [topic]}}
    access = json.dumps(listed | {"issuers": [known], "rules": [rule]})
    with closing(Process(variables | {"KEYLANE_ACCESS": access}, authorization=TOKENS)) as running:
        yield running


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_row_outside_the_scope_is_not_answered_neither_by_the_fast_path_nor_by_another(
    process: Process, topic: str
):
    # The topic is that of all tests here: what was decided on another test's token is remembered.
    path, token = f"/topics/{topic}/keys/k", KEY.token(claims(jti="outside the scope"))
    for is_fast in (False, True, True):
        listed = process.get(path, bearer(LISTED))
        assert (listed.status, listed.body) == (200, b"1")
        scoped = process.get(path, bearer(token))
        assert (scoped.status, scoped.is_fast) == (404, is_fast)
    assert process.get(path, bearer(LISTED)).is_fast


ROWS: dict[str, dict[str, Any]] = {
    "ann:1": {"value": b'{"tenant": "acme", "n": 1}'},
    "ann:2": {"value": b'{"tenant": "other", "n": 1}'},
    "ann:3": {"value": b'{"tenant": "' + b"a" * 900 + b'", "n": 1}'},
    "ann:4": {"value": b"no JSON"},
    "ann:5": {"value": None},
    "ann:6": {"value": LeftInKafka(7_000_000)},
    "ann:7": {"value": b'{"tenant": "acme", "n": 1}', "headers": (("trace", b"x"),)},
    "bob:1": {"value": b'{"tenant": "acme", "n": 1}'},
}
RULES: dict[str, dict[str, Any]] = {
    "all": {},
    "own": {"key": "${sub}:*"},
    "tenant": {"where": {"tenant": "acme"}},
    "cut": {"where": {"tenant": "a" * 900}},
    "neither": {"where": {"tenant": "a" * 899}},
    "fields": {"fields": ["n"]},
    "mixed": {"key": "${sub}:*", "where": {"tenant": ["acme", "other"]}, "fields": ["tenant"]},
}


def test_the_fast_path_answers_a_caller_with_rules_as_the_way_of_all_requests(
    variables: dict[str, str], redis_cluster: str
):
    options = Options(fields=(("tenant", "text"),))
    layout = a_layout(options=options)
    for key, record in ROWS.items():
        value = record["value"] if isinstance(record["value"], bytes) else None
        entries = entries_of(value, options) if value != b"no JSON" else b""
        envelope = encode_record(**{"offset": 3, "timestamp_ms": NOW_MS, "fields": entries, **record})
        fill(redis_cluster, a_lane(layout, key.encode(), b"") | {value_key(layout, key.encode()): envelope})
    known = {"issuer": NAME, "audience": AUDIENCE, "algorithms": ["RS256"], "jwks": jwks(KEY)}
    rules = [
        {"name": name, "issuer": NAME, "read": [layout.topic], "when": {"scope": name}, **rule}
        for name, rule in RULES.items()
    ]
    access = json.dumps({"issuers": [known], "rules": rules})
    with closing(Process(variables | {"KEYLANE_ACCESS": access}, authorization=TOKENS)) as running:
        seen = set[tuple[str, str, int]]()
        for rule in RULES:
            headers = bearer(KEY.token(claims(scope=rule)))
            for key in (*ROWS, "ann:absent"):
                path = f"/topics/{layout.topic}/keys/{key}"
                other, plain = running.get(path, headers | OTHER_WAY), running.get(path, headers)
                assert (plain.is_fast, other.is_fast) == (True, False)
                assert plain.lasting == other.lasting
                assert {name for name, _ in plain.headers} == {name for name, _ in other.headers}
                seen.add((rule, key, plain.status))
    found = {(rule, key) for rule, key, status in seen if status == 200}
    assert {key for rule, key in found if rule == "own"} == {"ann:1", "ann:2", "ann:3", "ann:4", "ann:7"}
    assert {key for rule, key in found if rule == "tenant"} == {"ann:1", "ann:7", "bob:1"}
    assert {key for rule, key in found if rule == "cut"} == {"ann:3"}
    assert not {key for rule, key in found if rule == "neither"}


def test_a_caller_reads_their_own_row_and_others_are_keys_that_do_not_exist(
    variables: dict[str, str], redis_cluster: str
):
    layout = a_layout(partition_count=1)
    fill(redis_cluster, a_lane(layout, b"ann", b"1"))
    rule = {"name": "own", "issuer": NAME, "read": [layout.topic], "key": "${sub}"}
    known = {"issuer": NAME, "audience": AUDIENCE, "algorithms": ["RS256"], "jwks": jwks(KEY)}
    access = json.dumps({"issuers": [known], "rules": [rule]})
    with closing(Process(variables | {"KEYLANE_ACCESS": access}, authorization=TOKENS)) as running:
        path = f"/topics/{layout.topic}/keys/ann"
        found = running.get(path, bearer(KEY.token(claims())))
        assert (found.status, found.body, found.is_fast) == (200, b"1", False)
        absent = running.get(f"/topics/{layout.topic}/keys/bob", bearer(KEY.token(claims(sub="bob"))))
        assert absent.status == 404
        for other in ("bob", "Ann", "an", "*", "ann/"):
            outside = running.get(path, bearer(KEY.token(claims(sub=other))))
            assert outside.lasting == absent.lasting


def all_of(topic: str, **more: Any) -> str:
    known = {"issuer": NAME, "audience": AUDIENCE, "algorithms": ["RS256"], "jwks": jwks(KEY), "leeway_s": 0}
    return json.dumps(
        {"issuers": [known], "rules": [{"name": "all", "issuer": NAME, "read": [topic], **more}]}
    )


def test_a_long_poll_lasts_no_longer_than_its_token(variables: dict[str, str], topic: str):
    with closing(Process(variables | {"KEYLANE_ACCESS": all_of(topic)}, authorization=TOKENS)) as running:
        headers = bearer(KEY.token(claims(exp=int(time.time()) + 3)))
        tag = dict(running.get(f"/topics/{topic}/keys/k", headers).headers)["ETag"]
        began_s = time.monotonic()
        found = running.get(f"/topics/{topic}/keys/k", {**headers, "If-None-Match": tag, "Prefer": "wait=20"})
        assert found.status == 304
        assert time.monotonic() - began_s < 10


CHANGED = {"the key": {"key": "other"}, "the claim": {"when": {"sub": "other"}}}


@pytest.mark.parametrize("more", CHANGED.values(), ids=CHANGED)
@pytest.mark.parametrize("waiting", ["a long poll", "a position", "an agent"])
def test_what_waits_while_another_policy_comes_that_does_not_permit_it_is_refused(
    variables: dict[str, str], topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting, more
):
    monkeypatch.setattr("keylane.wiring.authorizer.POLICY_TTL_S", 0.1)
    monkeypatch.setattr("keylane_server.access.LOOK_S", 0.05)
    file = tmp_path / "access.json"
    file.write_text(all_of(topic))
    with closing(Process(variables | {"KEYLANE_ACCESS": f"file:{file}"}, authorization=TOKENS)) as running:
        headers, path = bearer(KEY.token(claims())), f"/topics/{topic}/keys/k"
        tag = dict(running.get(path, headers).headers)["ETag"]
        change = Timer(0.5, file.write_text, [all_of(topic, **more)])
        change.start()
        if waiting == "an agent":
            wait = {"topic": topic, "key": "k", "seconds": 3}
            message = a_message("tools/call", name="wait_for_change", arguments=wait)
            found = running.ask("POST", "/mcp", headers | JSON, json.dumps(message).encode())
        elif waiting == "a position":
            found = running.get(f"{path}?min_offset=999999", headers)
        else:
            found = running.get(path, {**headers, "If-None-Match": tag, "Prefer": "wait=3"})
        change.join()
        assert found.status == 403


def test_decisions_are_counted_by_rule_and_the_issuer_is_asked_once(
    process: Process, topic: str, issuer: JwksServer
):
    token = bearer(KEY.token(claims()))
    process.get(f"/topics/{topic}/keys/ann%2F1", token)
    process.get("/brokers", token)
    assert 'keylane_access_decisions_total{result="allowed",rule="own"}' in process.metrics
    assert 'keylane_access_decisions_total{result="denied",rule="(none)"}' in process.metrics
    assert issuer.asked == 1


def test_a_page_that_one_host_begins_the_other_goes_on_with(
    variables: dict[str, str], serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
):
    served = serve(index=3, fields=(("tenant", "text"),))
    for number in range(9):
        served.put(f"ann/{number}".encode(), b'{"tenant": "acme"}')
    known = {"issuer": NAME, "audience": AUDIENCE, "algorithms": ["RS256"], "jwks": jwks(KEY)}
    rules = [
        {"name": "others", "issuer": NAME, "read": ["another"], "key": "${sub}"},
        {"name": "own", "issuer": NAME, "read": [served.topic], "write": [served.topic], "key": "${sub}/*"},
        {"name": "view", "issuer": NAME, "views": ["*"], "key": "${sub}"},
    ]
    environment = variables | {"KEYLANE_ACCESS": json.dumps({"issuers": [known], "rules": rules})}
    monkeypatch.setenv("KEYLANE_ACCESS", environment["KEYLANE_ACCESS"])
    authorizer, function = load_handler("authorizer"), query.build(Runtime(), environment)
    with (
        closing(Process(environment, authorization=TOKENS)) as running,
        closing(function.parts().store.state),
    ):
        headers = bearer(KEY.token(claims()))

        def by_server(path: str, asked: dict[str, str]) -> dict[str, Any]:
            found: dict[str, Any] = json.loads(running.get(f"{path}?{urlencode(asked)}", headers).body)
            return found

        def by_function(path: str, asked: dict[str, str]) -> dict[str, Any]:
            event = {"path": path, "httpMethod": "GET", "headers": headers, "methodArn": "arn"}
            many = {name: [value] for name, value in asked.items()}
            given = authorizer.lambda_handler({**event, "multiValueQueryStringParameters": many}, None)
            scope = decode_scope(given["context"][CONTEXT_NAME])
            answer = function.respond(Request("GET", path, many, {}, scope=scope))
            return dict(json.loads(answer.body))

        for path, more in (("keys", {}), ("find", {"tenant": "acme"}), ("find", {"order": "tenant"})):
            asked, seen, hosts = {"limit": "2", **more}, list[str](), cycle([by_server, by_function])
            while True:
                page = next(hosts)(f"/topics/{served.topic}/{path}", asked)
                seen += [record["key"] for record in page["records"]]
                if "next" not in page:
                    break
                asked["cursor"] = page["next"]
            assert seen == [f"ann/{number}" for number in range(9)]
