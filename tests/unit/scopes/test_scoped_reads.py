"""Reads of a caller with a scope, where pairs of answers say too little: cursors, bytes, refusals."""

from __future__ import annotations

import base64
import json
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import NOW_MS, a_layout, a_watermark, an_application, query_parts_over
from tests.support.fakes import FakeTime
from tests.support.indexed_state import IndexedState, StoredRecord

from keylane.access.scopes import KeyRule, PermittedRows, Scope, ScopeRule, Value
from keylane.api.http import cursors
from keylane.api.http.request import Request
from keylane.app import query
from keylane.config.api import ApiSettings
from keylane.errors import BadRequest
from keylane.model.records import Layout, Options
from keylane.query import finder
from keylane.query.conditions import RANGE, Asked
from keylane.query.join import read_joined
from keylane.query.newest import read_newest
from keylane.query.row_scopes import RowScopes
from keylane.query.store import ReadTerms
from keylane.state import codec, windows
from keylane.state.aggregates import Column
from keylane.state.lanes import lane_of_key, lanes_of_topic
from keylane.wiring.query import MOST_CALLERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.api.http.response import Response

FIELDS = (
    ("amount", "number"),
    ("done", "boolean"),
    ("placed", "time"),
    ("tags", "texts"),
    ("tenant", "text"),
)
OPTIONS = Options(index=1, fields=FIELDS)
ACME = PermittedRows("own", where=(("tenant", ("acme",)),))
LONG = "z" * 70


def value_of(tenant: Any, **more: Any) -> bytes:
    return json.dumps({"tenant": tenant, **more}).encode()


class ScopedTopic:
    """A topic with records, asked by callers."""

    def __init__(
        self,
        records: dict[str, bytes],
        options: Options = OPTIONS,
        partitions: int = 2,
        incarnation: int = 0,
    ) -> None:
        self.layout = a_layout(None, partitions, options=options, incarnation=incarnation)
        self.state = IndexedState()
        self.state.add(
            self.layout,
            [
                StoredRecord(key.encode(), value, 10 + number, NOW_MS - 1000)
                for number, (key, value) in enumerate(records.items())
            ],
        )
        self.time = FakeTime(NOW_MS)
        parts = query_parts_over(self.state, self.time)
        self._application = an_application(query.OPERATIONS, parts, ApiSettings())

    def ask(
        self,
        scope: Scope | Sequence[PermittedRows] | PermittedRows | None,
        path: str,
        method: str = "GET",
        **request: Any,
    ) -> Response[Any]:
        if isinstance(scope, PermittedRows):
            scope = [scope]
        if scope is not None and not isinstance(scope, Scope):
            scope = Scope("eve", tuple(ScopeRule(rows, read=("*",), views=("*",)) for rows in scope))
        named = {name: [each] for name, each in request.pop("query", {}).items()}
        full = f"/topics/{self.layout.topic}{path}"
        headers = request.pop("headers", {})
        return self._application.respond(
            Request(method, full, named, headers, **request, id="request-1", scope=scope)
        )


def problem_of(response: Response[Any]) -> tuple[int, str | None]:
    return response.status_code, response.problem


def keys_of(response: Response[Any]) -> list[str]:
    return [record["key"] for record in json.loads(response.body)["records"]]


@pytest.fixture
def topic() -> ScopedTopic:
    rows = {
        f"k{number:02}": value_of("acme" if number % 3 == 0 else "zoo", amount=number) for number in range(30)
    }
    return ScopedTopic(rows)


@pytest.mark.parametrize("accept", ["*/*", "application/octet-stream"])
def test_a_tag_is_of_what_a_caller_is_shown(accept: str):
    topic = ScopedTopic({"k03": value_of("acme", amount=3)}, incarnation=7)
    rules = [replace(ACME, fields=fields) for fields in (None, ("amount",), ("tenant",))]
    found = [topic.ask(each, "/keys/k03", headers={"accept": accept}) for each in rules]
    tags = [each.headers["ETag"] for each in found]
    assert len({each.body for each in found}) == len(set(tags)) == 3
    for rule, own in zip(rules, tags, strict=True):
        for tag in tags:
            headers = {"accept": accept, "if-none-match": tag, "prefer": "wait=0"}
            assert topic.ask(rule, "/keys/k03", headers=headers).status_code == (304 if tag == own else 200)
        # A tag of the position alone, as a write has it, names the record, whatever is shown of it.
        at = '"0-10-bytes"' if "octet" in accept else '"0-10"'
        written = topic.ask(rule, "/keys/k03", headers={"accept": accept, "if-match": at})
        assert written.status_code == 200


def test_a_date_names_no_form_of_a_record_that_rules_show():
    """Of other rules, that apply now, it was another one."""
    topic = ScopedTopic({"k03": value_of("acme", amount=3)}, incarnation=7)
    headers = {"if-modified-since": "Fri, 31 Dec 9999 23:59:59 GMT"}
    assert topic.ask(ACME, "/keys/k03", headers=headers).status_code == 200


def test_a_row_outside_takes_the_round_trips_of_an_absent_key(topic: ScopedTopic):
    topic.ask(ACME, "/keys/k01")
    counts = []
    for key in ("k01", "nothing"):
        begun = len(topic.state.reads) + len(topic.state.runs)
        response = topic.ask(ACME, f"/keys/{key}", headers={"if-none-match": "*", "prefer": "wait=0"})
        assert problem_of(response) == (404, "key-absent")
        counts.append(len(topic.state.reads) + len(topic.state.runs) - begun)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("key", ["k01", "nothing"])
def test_a_key_that_no_rule_names_is_not_even_asked_for(topic: ScopedTopic, key: str):
    """However large its value is, the answer takes no longer."""
    rows = PermittedRows("own", KeyRule("k00"))
    topic.ask(rows, "/keys/k00")
    topic.state.reads.clear()
    topic.state.runs.clear()
    assert problem_of(topic.ask(rows, f"/keys/{key}")) == (404, "key-absent")
    body = json.dumps({"keys": [key, "k00"]}).encode()
    records = json.loads(topic.ask(rows, "/keys:read", "POST", body=body).body)["records"]
    assert [record.get("absent", False) for record in records] == [True, False]
    keys = (key.encode(), key.encode() + b"2")
    scope = Scope("eve", (ScopeRule(rows, read=("*",)),))
    parts = topic._application.parts().within(scope)
    assert read_newest(parts.reading(topic.layout.topic), keys, ReadTerms(1000)).record is None
    other = ScopedTopic({}).layout
    topic.state.add(other, [])
    (one, two) = read_joined(parts.store, [topic.layout.topic, other.topic], keys[0], ReadTerms(1000))
    assert (one.record, two.record) == (None, None)
    asked = [name for names in topic.state.reads for name in names]
    asked += [word for run in topic.state.runs for words in run for word in words]
    assert [name for name in asked if name.endswith(b":" + key.encode())] == []


def test_a_cursor_is_of_its_caller_and_their_scope(topic: ScopedTopic):
    first = topic.ask(ACME, "/keys", query={"limit": "2"})
    cursor = {"limit": "2", "cursor": json.loads(first.body)["next"]}
    assert keys_of(topic.ask(ACME, "/keys", query=cursor)) == ["k06", "k09"]
    other = Scope("bob", (ScopeRule(ACME, read=("*",), views=("*",)),))
    assert problem_of(topic.ask(other, "/keys", query=cursor)) == (400, "bad-request")
    assert (
        problem_of(topic.ask(PermittedRows("own", where=(("tenant", ("zoo",)),)), "/keys", query=cursor))[0]
        == 400
    )
    assert problem_of(topic.ask(None, "/keys", query=cursor))[0] == 400
    unscoped = json.loads(topic.ask(None, "/keys", query={"limit": "2"}).body)["next"]
    assert problem_of(topic.ask(ACME, "/keys", query={"limit": "2", "cursor": unscoped}))[0] == 400


def test_a_cursor_of_an_earlier_version_is_of_no_scope(topic: ScopedTopic):
    asked = (Asked("amount", RANGE, "0"),)
    bounds = cursors.digest("find", asked, None, False)
    cursor = cursors.encode(topic.layout.topic, bounds, b"\x06amount\x80\0k00")
    named = {"amount": "0..", "cursor": cursor}
    assert topic.ask(None, "/find", query=named).status_code == 200
    assert problem_of(topic.ask(ACME, "/find", query=named)) == (400, "bad-request")


def test_a_request_goes_to_another_process_with_its_scope():
    scope = Scope("eve", (ScopeRule(ACME, read=("*",), stamp="by"),))
    request = Request("GET", "/topics/t/keys", {}, {}, scope=scope)
    assert pickle.loads(pickle.dumps(request)).scope == scope  # noqa: S301 (our own)


def test_no_cursor_has_a_key_of_a_row_outside(topic: ScopedTopic):
    for path, asked in (
        ("/keys", {}),
        ("/find", {"order": "amount"}),
        ("/find", {"order": "-amount"}),
        ("/find", {"amount": "0.."}),
    ):
        cursor, seen = None, []
        while True:
            more = {"limit": "3", **asked} | ({} if cursor is None else {"cursor": cursor})
            response = topic.ask([ACME, PermittedRows("two", KeyRule("k01"))], path, query=more)
            seen += keys_of(response)
            cursor = json.loads(response.body).get("next")
            if cursor is None:
                break
            assert seen[-1].encode() in base64.urlsafe_b64decode(cursor + "==")
        assert sorted(seen) == sorted([*(f"k{number:02}" for number in range(0, 30, 3)), "k01"])


def test_a_find_that_meets_too_many_others_says_so_and_names_none(
    topic: ScopedTopic, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(finder, "MOST_SCANNED", 5)
    sparse = [PermittedRows("one", KeyRule("k29")), PermittedRows("two", KeyRule("k28"))]
    response = topic.ask(sparse, "/find", query={"order": "amount"})
    assert problem_of(response) == (409, "scope-too-wide")
    assert "k0" not in response.body


def test_the_fields_of_the_only_rule_drive_a_find(topic: ScopedTopic):
    response = topic.ask(ACME, "/find", query={"amount": "0..100"})
    assert len(keys_of(response)) == 10
    assert len(topic.state.scanned) == 10, "no row of others was read"
    assert json.loads(response.body)["scanned"] == 10


TENANTS = {f"k{number:03}": f"t{number % 100:02}" for number in range(400)}


@pytest.fixture(scope="module")
def many_tenants() -> ScopedTopic:
    """Four records of each of a hundred tenants; a tag and an amount with each."""
    return ScopedTopic(
        {
            key: value_of(tenant, amount=int(key[1:]), tags=[tenant, "x", f"{tenant}-2"])
            for key, tenant in TENANTS.items()
        }
    )


@pytest.mark.parametrize(
    "query", [{"amount": "0.."}, {"order": "amount"}, {"order": "-amount"}, {"tags": "x"}]
)
@pytest.mark.parametrize("field", ["tenant", "tags"])
@pytest.mark.parametrize("limit", ["1", "5", "100"])
def test_each_value_of_a_rule_leads_to_its_rows_and_no_row_of_others_is_read(
    many_tenants: ScopedTopic, query: dict[str, str], field: str, limit: str
):
    values = ("t07", "t80", "t31", "none", "t80-2") if field == "tags" else ("t07", "t80", "t31", "none")
    scope = PermittedRows("own", where=((field, values),))
    own = [key for key, tenant in TENANTS.items() if tenant in values]
    many_tenants.state.scanned.clear()
    found: list[str] = []
    asked = {**query, "limit": limit}
    while True:
        page = many_tenants.ask(scope, "/find", query=asked)
        found += keys_of(page)
        if (cursor := json.loads(page.body).get("next")) is None:
            break
        asked["cursor"] = cursor
    order = query.get("order")
    assert (found if order else sorted(found)) == (own[::-1] if order == "-amount" else own)
    read = {member.rpartition(b"\0")[2].decode() for member in many_tenants.state.scanned}
    assert read <= set(own), "rows of others were read"


def test_many_values_of_a_rule_lead_nowhere_and_find_the_same(many_tenants: ScopedTopic):
    values = tuple(f"t{number:02}" for number in range(40))
    scope = PermittedRows("own", where=(("tenant", values),))
    response = many_tenants.ask(scope, "/find", query={"amount": "0..", "limit": "1000"})
    assert sorted(keys_of(response)) == [key for key, tenant in TENANTS.items() if tenant in values]


def test_values_that_no_field_can_have_find_nothing_and_read_nothing(many_tenants: ScopedTopic):
    scope = PermittedRows("own", where=(("amount", ("many", "few")),))
    many_tenants.state.scanned.clear()
    assert keys_of(many_tenants.ask(scope, "/find", query={"amount": "0.."})) == []
    assert many_tenants.state.scanned == []


def test_a_count_looks_at_no_other_rows(topic: ScopedTopic):
    assert json.loads(topic.ask(ACME, "/count").body)["count"] == 10
    assert json.loads(topic.ask(ACME, "/find", query={"tenant": "acme", "count": "true"}).body)["count"] == 10
    assert json.loads(topic.ask(ACME, "/find", query={"tenant": "zoo", "count": "true"}).body)["count"] == 0


def test_pages_are_filled_with_permitted_rows_and_the_last_one_says_so(topic: ScopedTopic):
    page = topic.ask(ACME, "/keys", query={"limit": "10"})
    assert len(keys_of(page)) == 10
    assert "next" not in json.loads(page.body), "what follows is not theirs"


SLOW = PermittedRows("own", where=(("tenant", ("acme",)), ("done", (True,))))


def a_slow_topic(count: int) -> ScopedTopic:
    """A topic of 250 rows of one tenant, the first `count` done; each round of reads takes a while."""
    topic = ScopedTopic({f"k{number:03}": value_of("acme", done=number < count) for number in range(250)})
    run = topic.state.run

    def run_slowly(*given: Any, **more: Any) -> Any:
        topic.time.move(0.3)
        return run(*given, **more)

    topic.state.run = run_slowly  # type: ignore[method-assign]
    return topic


def test_a_page_that_takes_too_long_ends_at_a_row_of_the_caller():
    response = a_slow_topic(10).ask(SLOW, "/keys", query={"limit": "50"})
    assert len(keys_of(response)) == 10
    cursor = base64.urlsafe_b64decode(json.loads(response.body)["next"] + "==")
    assert b"k009" in cursor


def test_one_that_has_none_by_then_is_refused():
    response = a_slow_topic(0).ask(SLOW, "/keys", query={"limit": "50"})
    assert problem_of(response) == (409, "scope-too-wide")


def test_bytes_of_a_value_are_not_had_by_whom_a_rule_shows_some_fields():
    topic = ScopedTopic({"a": value_of("acme", pin=1234), "b": b"\xff\x00pin"})
    rows = PermittedRows("own", fields=("tenant",))
    response = topic.ask(rows, "/keys/a", headers={"accept": "application/octet-stream"})
    assert (response.status_code, response.body) == (200, '{"tenant": "acme"}')
    assert response.headers["Content-Type"] == "application/json"
    assert problem_of(topic.ask(rows, "/keys/b")) == (409, "no-json-object")
    everything = topic.ask(rows, "/keys")
    assert "undecoded" in json.loads(everything.body)["records"][1]
    for text in ("1234", "pin", base64.b64encode(b"\xff\x00pin").decode()):
        assert text not in everything.body


def test_the_reason_why_a_value_can_t_be_decoded_does_not_quote_it():
    topic = ScopedTopic({"a": b'{"tenant": "acme", "pin": 1234, }'}, Options(index=1, value_format="json"))
    rows = PermittedRows("own", fields=("tenant",))
    assert problem_of(topic.ask(rows, "/keys/a")) == (422, "value-not-decodable")
    for response in (topic.ask(rows, "/keys/a"), topic.ask(rows, "/keys")):
        assert "1234" not in response.body
    (record,) = json.loads(topic.ask(rows, "/keys").body)["records"]
    assert (record["value"], record["undecoded"]) == ("", "it can't be decoded")


@pytest.mark.parametrize("query", [{"order": "amount"}, {"amount": "7"}, {"amount": "7", "count": "true"}])
def test_a_field_that_is_not_shown_is_no_condition(topic: ScopedTopic, query: dict[str, str]):
    rows = [PermittedRows("all", KeyRule("k01")), PermittedRows("own", fields=("tenant", "amounts"))]
    assert problem_of(topic.ask(rows, "/find", query=query)) == (403, "outside-scope")
    assert topic.ask(rows, "/find", query={"tenant": "zoo"}).status_code == 200


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/keys/a", "GET"),
        ("/keys", "GET"),
        ("/count", "GET"),
        ("/find", "GET"),
        ("/keys:read", "POST"),
        ("/keys/no", "HEAD"),
    ],
)
def test_a_topic_without_the_fields_of_the_rule_shows_nothing(path: str, method: str):
    topic = ScopedTopic({"a": value_of("acme")}, Options(index=1))
    body = b'{"keys": ["a"]}' if method == "POST" else b""
    response = topic.ask(ACME, path, method, body=body, query={"tenant": "acme"} if path == "/find" else {})
    assert problem_of(response) == (403, "outside-scope")


def test_a_rule_that_can_be_said_still_counts_beside_one_that_can_t():
    topic = ScopedTopic({"a": value_of("acme"), "b": value_of("acme")}, Options(index=1))
    assert keys_of(topic.ask([ACME, PermittedRows("two", KeyRule("b"))], "/keys")) == ["b"]


def test_a_layout_that_has_got_its_fields_a_moment_ago_is_read_again(topic: ScopedTopic):
    bare = Layout(topic.layout.topic, topic.layout.partition_count, options=Options(index=1))
    topic.ask(None, "/keys/k00")
    layouts = topic._application.parts().store.layouts
    layouts._kept[bare.topic] = (bare, layouts._kept[bare.topic][1])
    assert topic.ask(ACME, "/keys/k00").status_code == 200


@pytest.mark.parametrize("path", ["/keys/k00/history", "/keys/k01/history", "/keys/none/history"])
def test_earlier_records_have_no_fields_and_are_refused_where_rules_compare_them(path: str):
    topic = ScopedTopic(
        {"k00": value_of("acme"), "k01": value_of("zoo")}, Options(index=1, fields=FIELDS, history_count=3)
    )
    assert problem_of(topic.ask(ACME, path)) == (403, "outside-scope")
    assert problem_of(topic.ask(ACME, path.removesuffix("/history"), query={"as_of": str(NOW_MS)}))[0] == 403
    assert problem_of(topic.ask(ACME, "/keys", query={"as_of": str(NOW_MS)}))[0] == 403
    assert topic.ask([ACME, PermittedRows("two", KeyRule("k00"))], path).status_code == 200


@pytest.mark.parametrize(
    ("name", "value", "claim", "is_met"),
    [
        ("tenant", "7", 7, False),
        ("tenant", 7, 7, False),
        ("tenant", "true", True, False),
        ("tenant", "acme", "ACME", False),
        ("tenant", "acme", "acme*", False),
        ("tenant", "", "", True),
        ("tenant", LONG, LONG, True),
        ("tenant", LONG, LONG + "y", False),
        ("tenant", LONG[:64], LONG, False),
        ("tenant", "\ud800", "\ud800", False),
        ("tags", ["a", LONG], LONG, True),
        ("tags", ["a", LONG + "1"], LONG, False),
        ("tags", ["a", "b"], "b", True),
        ("amount", 7, 7, True),
        ("amount", 7, 7.0, True),
        ("amount", 7, "7", False),
        ("amount", 1, True, False),
        ("amount", 0.1, 0.1, True),
        ("amount", 1, float("nan"), False),
        ("done", True, True, True),
        ("done", True, "true", False),
        ("done", True, 1, False),
        ("placed", 1000, 1000, True),
        ("placed", 1000, "1970-01-01T00:00:01Z", True),
    ],
)
def test_a_claim_is_a_value_of_the_field_s_type_or_none(name: str, value: Any, claim: Value, *, is_met: bool):
    topic = ScopedTopic({"a": json.dumps({name: value}).encode()})
    found = topic.ask(PermittedRows("own", where=((name, (claim,)),)), "/keys/a")
    assert found.status_code == (200 if is_met else 404)


def test_a_long_text_is_compared_whole_in_every_read():
    topic = ScopedTopic({"a": value_of(LONG), "b": value_of(LONG + "y")})
    rows = PermittedRows("own", where=(("tenant", (LONG,)),))
    assert keys_of(topic.ask(rows, "/keys")) == ["a"]
    assert keys_of(topic.ask(rows, "/find", query={"tenant": ".."})) == ["a"]
    assert json.loads(topic.ask(rows, "/count").body)["count"] == 1
    assert json.loads(topic.ask(rows, "/find", query={"tenant": "..", "count": "true"}).body)["count"] == 1


def test_a_rule_compares_a_long_text_that_it_does_not_show():
    topic = ScopedTopic({"a": value_of("acme", tags=[LONG]), "b": value_of("acme", tags=[LONG + "y"])})
    rows = PermittedRows("own", where=(("tags", (LONG,)),), fields=("tenant",))
    assert keys_of(topic.ask(rows, "/find", query={"tenant": "acme"})) == ["a"]
    assert json.loads(topic.ask(rows, "/find", query={"tenant": "acme", "count": "true"}).body)["count"] == 1


def test_a_long_text_is_compared_whole_where_an_index_of_several_fields_counts():
    options = replace(OPTIONS, indexes=(("both", ("tenant", "amount")),))
    topic = ScopedTopic({"a": value_of(LONG, amount=1), "b": value_of(LONG + "y", amount=1)}, options)
    rows = PermittedRows("own", where=(("tenant", (LONG,)),))
    assert json.loads(topic.ask(rows, "/find", query={"amount": "1", "count": "true"}).body)["count"] == 1


def test_keys_of_several_fields_can_t_be_named_by_a_rule():
    options = Options(index=1, key_fields=(("tenant", "string"), ("id", "integer")))
    topic = ScopedTopic({'{"tenant":"acme","id":1}': value_of("acme")}, options)
    for key in (KeyRule('{"tenant":"acme","id":1}'), KeyRule('{"tenant":"acme"', is_prefix=True)):
        assert problem_of(topic.ask(PermittedRows("own", key), "/keys")) == (403, "outside-scope")


@pytest.mark.parametrize(
    ("rule", "keys"),
    [
        (KeyRule("bob"), ["bob"]),
        (KeyRule("b", is_prefix=True), ['bo"b', "bob"]),
        (KeyRule('{"id":"bob"}'), []),
        (KeyRule('{"id":"bob"', is_prefix=True), []),
        (KeyRule('bo"', is_prefix=True), ['bo"b']),
        (KeyRule('bob"}', is_prefix=True), []),
    ],
)
def test_typed_keys_are_named_by_their_value_taken_literally(rule: KeyRule, keys: list[str]):
    options = Options(index=1, key_fields=(("id", "string"),))
    topic = ScopedTopic({'{"id":"bob"}': b"{}", '{"id":"bo\\"b"}': b"{}", '{"id":"eve"}': b"{}"}, options)
    response = topic.ask(PermittedRows("own", rule), "/keys")
    assert [each["id"] for each in keys_of(response)] == keys  # type: ignore[index]


def test_a_prefix_of_numbers_is_refused():
    topic = ScopedTopic({'{"id":7}': b"{}"}, Options(index=1, key_fields=(("id", "integer"),)))
    assert problem_of(topic.ask(PermittedRows("own", KeyRule("7", is_prefix=True)), "/keys"))[0] == 403
    assert topic.ask(PermittedRows("own", KeyRule("7")), "/keys/7").status_code == 200
    assert topic.ask(PermittedRows("own", KeyRule("70")), "/keys/7").status_code == 404


@pytest.mark.parametrize("text", ["07", "007", "-0", "00", "-07", "+7", " 7", "7.0", "\u0667"])
def test_a_number_has_one_rendering_in_a_rule_so_that_no_two_callers_share_a_key(text: str):
    options = Options(index=1, key_fields=(("id", "integer"),))
    topic = ScopedTopic({'{"id":7}': b"{}", '{"id":0}': b"{}", '{"id":-7}': b"{}"}, options)
    assert keys_of(topic.ask(PermittedRows("own", KeyRule(text)), "/keys")) == []
    assert topic.ask(PermittedRows("own", KeyRule(text)), "/keys/7").status_code == 404
    assert keys_of(topic.ask(PermittedRows("own", KeyRule("-7")), "/keys")) == [{"id": -7}]


def test_keys_of_a_registry_are_named_whole_and_not_as_objects():
    layout = a_layout(options=Options(index=1, key_format="registry"))
    asked: list[bytes] = []

    def keys_of_schemas(_: Layout, key: bytes) -> tuple[bytes, ...]:
        asked.append(key)
        if key == b"odd":
            raise BadRequest("no schema holds it")
        return (b"\0\0\0\0\1" + key, b"\0\0\0\0\2" + key)

    def permitted(rule: KeyRule) -> list[bytes]:
        scope = Scope("eve", (ScopeRule(PermittedRows("own", rule), read=("*",)),))
        found = RowScopes(scope, lambda _, record: record, keys_of_schemas).of(layout)
        return [key for key in (b"\0\0\0\0\1bob", b"\0\0\0\0\2bob", b"\0\0\0\0\1eve") if found.has_key(key)]

    assert permitted(KeyRule("bob")) == [b"\0\0\0\0\1bob", b"\0\0\0\0\2bob"]
    assert permitted(KeyRule("odd")) == permitted(KeyRule('{"id":"bob"}')) == []
    assert asked == [b"bob", b"odd"]


def test_a_scope_without_a_rule_that_can_match_sees_an_empty_topic(topic: ScopedTopic):
    nothing = PermittedRows("own", where=(("tenant", ()),))
    assert keys_of(topic.ask(nothing, "/keys")) == []
    assert keys_of(topic.ask(nothing, "/find", query={"order": "amount"})) == []
    assert json.loads(topic.ask(nothing, "/count").body)["count"] == 0
    assert topic.ask(nothing, "/keys/k00").status_code == 404


def test_more_values_than_are_merged_are_refused_but_for_single_keys(topic: ScopedTopic):
    many = PermittedRows("own", where=(("tenant", (*(f"t{number}" for number in range(100)), "acme")),))
    assert problem_of(topic.ask(many, "/keys")) == (403, "outside-scope")
    assert topic.ask(many, "/keys/k00").status_code == 200


def test_the_event_of_a_row_is_not_had_by_whom_a_rule_permits_the_row_that_it_is_now():
    """It has what the row was before, which may have been another's."""
    options = Options(index=1, fields=FIELDS, envelope="debezium", value_format="json")
    event = {"before": {"tenant": "zoo", "pin": 1234}, "after": {"tenant": "acme"}, "op": "u"}
    topic = ScopedTopic({}, options)
    record = StoredRecord(b"a", json.dumps(event).encode(), 10, NOW_MS)
    topic.state.add(topic.layout, [record], row=b'{"tenant": "acme"}')
    response = topic.ask(ACME, "/keys/a", headers={"accept": "application/octet-stream"})
    assert (response.status_code, json.loads(response.body)) == (200, {"tenant": "acme"})
    assert "1234" not in topic.ask(ACME, "/keys").body
    assert "1234" in topic.ask(PermittedRows("key", KeyRule("a")), "/keys/a", query={"event": "true"}).body


def test_of_a_key_with_several_schemas_the_newest_record_decides():
    layout = a_layout(None, 1, options=OPTIONS)
    state = IndexedState()
    older = StoredRecord(b"one", value_of("acme"), 5, NOW_MS - 2000)
    newer = StoredRecord(b"two", value_of("zoo"), 6, NOW_MS - 1000)
    state.add(layout, [older, newer])
    parts = query_parts_over(state).within(Scope("eve", (ScopeRule(ACME, read=("*",)),)))
    answer = read_newest(parts.reading(layout.topic), (b"two", b"one"), ReadTerms(1000))
    assert answer.record is None, "the older one is not valid any more"
    state.add(layout, [replace(newer, value=value_of("acme"))])
    answer = read_newest(parts.reading(layout.topic), (b"two", b"one"), ReadTerms(1000))
    assert answer.record is not None
    assert answer.record.key == b"two"


def a_view() -> ScopedTopic:
    definition = windows.Definition("orders", (Column("n", "count"),))
    topic = ScopedTopic({}, Options(index=1, view=definition.to_json()))
    topic.layout = Layout("~sums", 2, options=topic.layout.options)
    records = [
        StoredRecord(windows.window_key(key, start), windows.encode_window(None, [start]), 5, NOW_MS)
        for key in (b"a", b"a\0b", b"ab", b"b")
        for start in (0, 1)
    ]
    topic.state.add(topic.layout, records)
    return topic


@pytest.mark.parametrize(
    ("rule", "keys"),
    [
        (KeyRule("a"), ["a", "a"]),
        (KeyRule("a", is_prefix=True), ["a", "a", "a\0b", "a\0b", "ab", "ab"]),
        (KeyRule("a\0", is_prefix=True), ["a\0b", "a\0b"]),
        (None, ["a", "a", "a\0b", "a\0b", "ab", "ab", "b", "b"]),
    ],
)
def test_windows_of_a_view_are_those_of_the_rule_s_keys(rule: KeyRule | None, keys: list[str]):
    topic = a_view()
    scope = Scope("eve", (ScopeRule(PermittedRows("own", rule), views=("sums",)),))

    def ask(path: str, **query: str) -> Response[Any]:
        named = {name: [each] for name, each in query.items()}
        return topic._application.respond(Request("GET", path, named, {}, id="request-1", scope=scope))

    found = [each["key"] for each in json.loads(ask("/views/sums/keys").body)["windows"]]
    assert found == keys
    pages, cursor = [], ""
    while cursor is not None:
        body = json.loads(ask("/views/sums/keys", limit="3", **({"cursor": cursor} if cursor else {})).body)
        pages += [each["key"] for each in body["windows"]]
        cursor = body.get("next")
    assert pages == keys
    assert len(json.loads(ask("/views/sums/keys/b").body)["windows"]) == keys.count("b")
    assert problem_of(ask("/views/sums")) == problem_of(ask("/views")) == (403, "outside-scope")


def test_the_windows_of_one_key_are_read_from_its_lane_alone():
    topic = a_view()
    building = codec.encode_watermark(a_watermark(complete_as_of_ms=0))
    others = [each for each in lanes_of_topic(topic.layout) if each != lane_of_key(topic.layout, b"b")]
    topic.state.entries |= {each.watermark_key: building for each in others}
    scope = Scope("eve", (ScopeRule(PermittedRows("own", KeyRule("b")), views=("sums",)),))
    answers = [
        topic._application.respond(Request("GET", path, {}, {}, id="request-1", scope=each))
        for path in ("/views/sums/keys/b", "/views/sums/keys")
        for each in (scope, None)
    ]
    assert [each.status_code for each in answers] == [200, 200, 503, 503]
    assert answers[0].body == answers[1].body


def test_a_rule_for_views_that_compares_fields_needs_a_key():
    topic = a_view()
    scope = Scope("eve", (ScopeRule(ACME, views=("sums",)),))
    response = topic._application.respond(
        Request("GET", "/views/sums/keys", {}, {}, id="request-1", scope=scope)
    )
    assert problem_of(response) == (403, "outside-scope")


def test_what_a_caller_reads_with_is_made_once_for_each_scope(topic: ScopedTopic):
    parts = query_parts_over(topic.state, topic.time)
    scopes = [Scope("ann", (ScopeRule(ACME, read=("*",)),)) for _ in range(MOST_CALLERS + 1)]
    first = parts.within(scopes[0])
    assert parts.within(scopes[0]) is first
    equal = parts.within(scopes[1])
    assert equal is not first, "an equal scope may be another token's"
    assert first.store.scopes is not None
    assert first.store.scopes.scope is scopes[0]
    for each in scopes:
        assert parts.within(each).store.scopes.scope is each  # type: ignore[union-attr]
    assert len(parts.of_callers) <= MOST_CALLERS
