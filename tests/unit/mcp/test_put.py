"""The tool that writes: it is there where a setting says so and the host can, with the route's rights."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.agents import Agent, a_message
from tests.support.builders import NOW_MS, an_application, produce_parts_over, query_parts_over
from tests.support.fakes import FakeLog, FakeTime
from tests.support.indexed_state import IndexedState

from keylane.access.scopes import KeyRule, PermittedRows, Scope, ScopeRule
from keylane.app import produce, query
from keylane.config.api import ApiSettings
from keylane.model.served_topics import ServedTopics
from keylane.produce.put import RecordWriter

if TYPE_CHECKING:
    from keylane.model.records import NewRecord

WRITES = ApiSettings(has_agent_writes=True)
OWN = Scope("ann", (ScopeRule(PermittedRows("own", KeyRule("ann/", is_prefix=True)), write=("orders",)),))


class Writing:
    """An agent that may write, and the log that it writes to."""

    def __init__(self, scope: Scope | None = None, settings: ApiSettings = WRITES) -> None:
        self.log = FakeLog()
        for topic in ("orders", "invoices", "hidden"):
            self.log.create(topic, 1)
        clock = FakeTime(NOW_MS).clock
        writer = RecordWriter(self.log, clock, 1_000, 5_000, served=settings.topics)
        writes = an_application(produce.OPERATIONS, produce_parts_over(writer), settings)
        parts = replace(query_parts_over(IndexedState()), write=writes.respond_within)
        self.agent = Agent(an_application(query.OPERATIONS, parts, settings), scope)

    @property
    def records(self) -> list[NewRecord]:
        return self.log.sent


def tools_of(agent: Agent) -> list[str]:
    listed = json.loads(agent.post(a_message("tools/list")).body)
    return [each["name"] for each in listed["result"]["tools"]]


def test_put_is_there_where_the_setting_and_the_host_say_so():
    assert "put" in tools_of(Writing().agent)
    assert "put" not in tools_of(Writing(settings=ApiSettings()).agent)
    reading = Agent(an_application(query.OPERATIONS, query_parts_over(IndexedState()), WRITES))
    assert "put" not in tools_of(reading)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ('"text"', b"text"),
        (
            '{"amount": 12345678901234567890.10, "a": [1e2]}',
            b'{"amount": 12345678901234567890.10, "a": [1e2]}',
        ),
        ("[1, 2]", b"[1, 2]"),
        ("1.50", b"1.50"),
        ("false", b"false"),
        ('"\\u00e9"', b"\xc3\xa9"),
    ],
)
def test_a_string_is_written_as_it_is_and_all_else_as_the_body_has_it(value: str, written: bytes):
    writing = Writing()
    arguments = f'{{"topic": "orders", "key": "a/1", "value": {value}}}'
    params = f'{{"name": "put", "arguments": {arguments}}}'
    body = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'
    result = json.loads(writing.agent.post(body.encode()).body)["result"]
    assert result["isError"] is False
    assert result["structuredContent"]["position"]
    [record] = writing.records
    assert (record.topic, record.key, record.value) == ("orders", b"a/1", written)


def test_the_rules_of_the_caller_decide_on_a_write():
    writing = Writing(OWN)
    assert writing.agent.ask("put", topic="orders", key="ann/1", value=1)["position"]
    for topic, key in (("orders", "bob/1"), ("invoices", "ann/1")):
        found, is_error = writing.agent.call("put", topic=topic, key=key, value=1)
        assert (is_error, found["problem"]) == (True, "outside-scope")
    assert len(writing.records) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"topic": "orders", "key": "a"}, "bad-request"),
        ({"topic": "orders", "key": "", "value": 1}, "empty-key"),
        ({"topic": "orders", "key": "a", "value": "\ud800"}, "bad-request"),
        ({"topic": "hidden", "key": "a", "value": 1}, "topic-not-served"),
    ],
)
def test_a_write_that_fails_says_why(arguments: dict[str, Any], problem: str):
    writing = Writing(settings=replace(WRITES, topics=ServedTopics(write=("orders",))))
    found, is_error = writing.agent.call("put", **arguments)
    assert (is_error, found["problem"]) == (True, problem)
    assert writing.records == []


def test_a_batch_writes_nothing():
    writing = Writing()
    message = a_message("tools/call", name="put", arguments={"topic": "orders", "key": "a", "value": 1})
    [answer] = json.loads(writing.agent.post([message]).body)
    assert answer["result"]["isError"] is True
    assert writing.records == []
