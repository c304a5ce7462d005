"""Writes of a caller with a scope: the keys of their rules, and the header with their name."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import a_layout, an_application, layout_entry, produce_parts_over
from tests.support.fakes import FakeLog, FakeState, FakeTime

from keylane.access.callers import Caller
from keylane.access.scopes import KeyRule, PermittedRows, Scope, ScopeRule
from keylane.api.http.request import Request
from keylane.api.writes.idempotency import claim
from keylane.app import produce
from keylane.config.api import ApiSettings
from keylane.errors import OutsideScope
from keylane.model.records import NewRecord, Options
from keylane.ports import Clock
from keylane.produce.guards import NO_GUARDS, Claimed
from keylane.produce.put import RecordWriter
from keylane.produce.readable import ReadersRules
from keylane.produce.topic_formats import TopicFormats
from keylane.produce.write_scopes import scoped_records
from keylane.query.layouts import Layouts

if TYPE_CHECKING:
    from keylane.api.http.response import Response

JSON = "application/vnd.kafka.json.v2+json"
OWN = PermittedRows("own", KeyRule("ann/", is_prefix=True))


class WrittenTopic:
    """A topic in the log, written by callers with scopes."""

    def __init__(self, options: Options | None = None) -> None:
        self.log = FakeLog()
        self.layout = a_layout(partition_count=2, options=options or Options())
        self.log.create(self.layout.topic, 2)
        clock = FakeTime().clock
        layouts = Layouts(FakeState(layout_entry(self.layout)), clock, 30)
        readers = ReadersRules(TopicFormats(layouts, clock))
        writer = RecordWriter(self.log, Clock(), 1_000, 5_000, readers=readers)
        self._application = an_application(produce.OPERATIONS, produce_parts_over(writer), ApiSettings())

    def send(
        self, rule: ScopeRule | Scope, method: str, path: str, body: bytes = b"", **more: Any
    ) -> Response[Any]:
        scope = rule if isinstance(rule, Scope) else Scope("iss ann", (rule,))
        headers = more.get("headers", {})
        named = {name: [each] for name, each in more.get("query", {}).items()}
        request = Request(
            method, f"/topics/{self.layout.topic}{path}", named, headers, body, id="r", scope=scope
        )
        return self._application.respond(request)


def rule(rows: PermittedRows = OWN, **fields: Any) -> ScopeRule:
    return ScopeRule(rows, write=("*",), **fields)


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize("key", ["bob%2F1", "ann", "Ann%2F1", "an"])
def test_a_key_outside_is_refused_and_nothing_is_written(method: str, key: str):
    topic = WrittenTopic()
    response = topic.send(rule(), method, f"/keys/{key}", b"1")
    assert (response.status_code, response.problem) == (403, "outside-scope")
    assert topic.log.sent == []
    assert "bob" not in response.body


@pytest.mark.parametrize(("method", "status"), [("PUT", 201), ("DELETE", 200)])
def test_a_key_of_the_rule_is_written(method: str, status: int):
    topic = WrittenTopic()
    assert topic.send(rule(), method, "/keys/ann%2F1", b"1").status_code == status
    assert [record.key for record in topic.log.sent] == [b"ann/1"]


def test_a_rule_that_reads_does_not_write():
    topic = WrittenTopic()
    response = topic.send(ScopeRule(PermittedRows("all"), read=("*",)), "PUT", "/keys/a", b"1")
    assert (response.status_code, response.problem) == (403, "outside-scope")


def test_a_rule_that_compares_fields_writes_by_its_key_alone():
    topic = WrittenTopic()
    where = (("tenant", ("acme",)),)
    assert topic.send(rule(PermittedRows("r", None, where)), "PUT", "/keys/a", b"1").status_code == 403
    assert (
        topic.send(rule(PermittedRows("r", KeyRule("a"), where)), "PUT", "/keys/a", b"1").status_code == 201
    )


def test_one_record_outside_holds_up_the_request_before_anything_is_written():
    topic = WrittenTopic()
    records = [{"key": "ann/1", "value": 1}, {"key": "bob/1", "value": 2}]
    body = json.dumps({"records": records}).encode()
    text = {"key_format": "text"}
    refused = topic.send(rule(), "POST", "", body, headers={"content-type": JSON}, query=text)
    assert refused.status_code == 403
    assert topic.log.sent == []
    body = json.dumps({"records": records[:1]}).encode()
    assert topic.send(rule(), "POST", "", body, headers={"content-type": JSON}, query=text).status_code == 200
    body = json.dumps({"records": [{"value": 1}]}).encode()
    assert topic.send(rule(), "POST", "", body, headers={"content-type": JSON}).status_code == 403


def test_bodies_with_schemas_are_refused():
    response = WrittenTopic().send(
        rule(), "POST", "", b"{}", headers={"content-type": "application/vnd.kafka.avro.v2+json"}
    )
    assert response.status_code == 403


def test_the_stamp_has_the_caller_s_name_whatever_the_client_says():
    topic = WrittenTopic()
    headers = [{"name": "Written-By", "value": "bob"}, {"name": "note", "value": "x"}]
    body = json.dumps({"records": [{"key": "ann/1", "value": 1, "headers": headers}]}).encode()
    sent = topic.send(
        rule(stamp="written-by"),
        "POST",
        "",
        body,
        headers={"content-type": JSON},
        query={"key_format": "text"},
    )
    assert sent.status_code == 200
    assert topic.log.sent[0].headers == (("note", b"x"), ("written-by", b"iss ann"))
    topic.send(rule(stamp="written-by"), "DELETE", "/keys/ann%2F1")
    assert topic.log.sent[1].headers == (("written-by", b"iss ann"),)


def test_only_rules_that_permit_the_key_stamp():
    record = NewRecord("t", b"ann/1", b"1")
    rules = (
        rule(),
        rule(PermittedRows("other", KeyRule("bob")), stamp="by-other"),
        rule(PermittedRows("all"), stamp="by"),
    )
    (stamped,) = scoped_records(Scope("ann", rules), [record], None)
    assert stamped.headers == (("by", b"ann"),)


def test_typed_keys_are_those_of_readers():
    topic = WrittenTopic(Options(key_fields=(("id", "string"),)))
    own = rule(PermittedRows("own", KeyRule("ann")))
    assert topic.send(own, "PUT", "/keys/ann", b"1").status_code == 201
    assert topic.log.sent[0].key == b'{"id":"ann"}'
    assert topic.send(own, "PUT", "/keys/%7B%22id%22%3A%22bob%22%7D", b"1").status_code == 403
    odd = rule(PermittedRows("own", KeyRule('{"id":"bob"}')))
    assert topic.send(odd, "PUT", "/keys/bob", b"1").status_code == 403


@pytest.mark.parametrize(
    "key", ['{"id":"ann/1","id":"bob/1"}', '{"id":"ann/1","\\u0069d":"bob/1"}', '{"id":"ann/1"}x']
)
def test_a_typed_key_that_others_take_for_another_one_is_refused_whatever_the_client_says(key: str):
    topic = WrittenTopic(Options(key_fields=(("id", "string"),)))
    path = f"/keys/{urlsafe_b64encode(key.encode()).decode()}"
    response = topic.send(rule(), "PUT", path, b"1", query={"key_format": "base64", "raw": "true"})
    assert (response.status_code, response.problem) == (422, "key-unreadable")
    assert topic.log.sent == []


def test_where_nothing_says_how_keys_are_written_no_rule_names_typed_ones():
    record = NewRecord("t", b'{"id":"bob"}', b"1")
    for text in ('{"id":"bob"}', '{"id":"b'):
        scope = Scope("ann", (rule(PermittedRows("own", KeyRule(text, is_prefix=True))),))
        with pytest.raises(OutsideScope):
            scoped_records(scope, [record], None)


def test_keys_of_a_registry_can_t_be_written_by_a_rule_with_a_key():
    topic = WrittenTopic(Options(key_format="registry"))
    response = topic.send(
        rule(PermittedRows("own", KeyRule("ann"))), "PUT", "/keys/ann", b"1", query={"raw": "true"}
    )
    assert (response.status_code, response.problem) == (403, "outside-scope")


def test_idempotency_keys_are_the_caller_s_own():
    names = []

    class Store:
        def claim(self, name: str, fingerprint: bytes) -> Claimed:
            names.append((name, fingerprint))
            return Claimed(b"token", None)

    guards = NO_GUARDS.__class__(**{**_fields(NO_GUARDS), "idempotency": Store})
    for scope in (Scope("ann"), Scope("bob"), None, Scope("ann")):
        request = Request("PUT", "/topics/t/keys/a", {}, {}, b"1", Caller("gateway"), scope=scope)
        claim(guards, request, "k1")
    assert len({name for name, _ in names}) == 3
    assert names[0] == names[3]


def _fields(guards: Any) -> dict[str, Any]:
    return {name: getattr(guards, name) for name in guards.__dataclass_fields__}
