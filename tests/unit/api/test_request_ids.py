"""A request's id and its trace: in headers of its records, and as a field of its log lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.builders import load_produce, load_query

from keylane.config.table import WRITES
from keylane.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.fakes import FakeLog

HEADER = "request-id"
REST = {"Content-Type": "application/vnd.kafka.json.v2+json"}
V3 = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("PUT", "/topics/orders/keys/k", b"1", {}),
        ("DELETE", "/topics/orders/keys/k", b"", {}),
        ("POST", "/push", {"records": [{"topic": "orders", "key": "k", "data": "1"}]}, {}),
        ("POST", "/topics/orders", {"records": [{"value": 1, "headers": []}]}, REST),
        ("POST", "/v3/clusters/c/topics/orders/records", {"value": {"type": "JSON", "data": 1}}, V3),
    ],
)
def test_every_record_names_its_request_where_a_header_is_set(
    log: FakeLog, method: str, path: str, body: object, headers: Mapping[str, str]
):
    for name in (HEADER, None):
        post = load_produce(log, request_id_header=name)
        assert post(path, body, method=method, headers=headers)["statusCode"] < 300
    with_header, without = log.sent
    assert dict(with_header.headers).keys() == {HEADER}
    assert dict(with_header.headers)[HEADER]
    assert without.headers == ()


def test_the_headers_of_the_client_stay(log: FakeLog):
    post = load_produce(log, request_id_header=HEADER)
    record = {"value": 1, "headers": [{"name": "a", "value": "MQ=="}]}
    post("/topics/orders", {"records": [record]}, headers=REST)
    assert [name for name, _ in log.sent[0].headers] == ["a", HEADER]


@pytest.mark.parametrize("name", ["a b", "a\nb", "x" * 101, "é"])
def test_a_header_has_a_plain_name(name: str):
    with pytest.raises(SettingsError, match="KEYLANE_REQUEST_ID_HEADER"):
        WRITES.read({"KEYLANE_REQUEST_ID_HEADER": f"-{name}"}, "KEYLANE_REQUEST_ID_HEADER")


def test_a_log_line_has_the_id_that_the_client_sees(caplog: pytest.LogCaptureFixture):
    ask = load_query({b"{keylane}:layout:orders": b"broken"})
    answer = ask("GET", "/topics/orders/keys/k")
    assert answer["statusCode"] >= 500
    [line] = [each for each in caplog.records if each.name == "keylane"]
    assert line.correlation_id  # type: ignore[attr-defined]
    assert line.correlation_id in json.loads(answer["body"])["instance"]  # type: ignore[attr-defined]


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"traceparent": TRACE}, {"traceparent": TRACE.encode()}),
        ({"Traceparent": TRACE, "TraceState": "a=1"}, {"traceparent": TRACE.encode(), "tracestate": b"a=1"}),
        ({"traceparent": TRACE, "tracestate": "x" * 513}, {"traceparent": TRACE.encode()}),
        ({"tracestate": "a=1"}, {}),
        *(
            ({"traceparent": invalid}, {})
            for invalid in (
                TRACE.upper(),
                TRACE.replace("00-4", "ff-4", 1),
                f"00-{'0' * 32}-00f067aa0ba902b7-01",
                f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
                f"{TRACE}, {TRACE}",
                "",
            )
        ),
    ],
)
def test_a_record_has_the_trace_of_its_request_unless_it_is_invalid(log: FakeLog, given, expected):
    load_produce(log)("/topics/orders/keys/k", b"1", method="PUT", headers=given)
    assert dict(log.sent[0].headers) == expected


def test_a_record_with_a_trace_of_its_own_keeps_it_and_the_setting_turns_traces_off(log: FakeLog):
    own = {"value": 1, "headers": [{"name": "traceparent", "value": "MQ=="}]}
    load_produce(log)("/topics/orders", {"records": [own]}, headers=REST | {"traceparent": TRACE})
    off = load_produce(log, has_trace_headers=False)
    off("/topics/orders/keys/k", b"1", method="PUT", headers={"traceparent": TRACE})
    first, second = log.sent
    assert [name for name, _ in first.headers] == ["traceparent"]
    assert dict(first.headers)["traceparent"] != TRACE.encode()
    assert second.headers == ()
