"""A Schema Registry that dies, hangs, or answers with garbage: reads say so in time, bytes are served."""

from __future__ import annotations

import base64
import json
import logging
import ssl
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import deadline, eventually, fill
from tests.servers.registry_double import RegistryDouble, client_of
from tests.support.builders import a_lane, a_layout, body_of, headers_of
from tests.support.certificates import certify
from tests.support.stopwatch import takes_about

from keylane.adapters.registry.decoders import RegistryDecoders
from keylane.errors import RegistryUnavailable
from keylane.formats import confluent
from keylane.model.records import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Ask = Callable[..., dict[str, Any]]

BOUND_MS = 300
STRING = json.dumps("string")
VALUE = confluent.join(7, b"\x06SFO")


def decoders(url: str, ca_file: str | None = None) -> RegistryDecoders:
    return RegistryDecoders(client_of(url, ca_file=ca_file))


@pytest.fixture
def function(reading: Callable[..., Ask]) -> Callable[..., Ask]:
    """Makes a warm function that waits for the registry for BOUND_MS."""
    return partial(reading, TIMEOUT_MS=str(BOUND_MS))


@pytest.fixture
def bad_day() -> Iterator[RegistryDouble]:
    with RegistryDouble() as served:
        yield served


def a_topic_of(redis_cluster: str, *values: bytes) -> str:
    """A topic of registry values, under the keys 0, 1, 2, ..."""
    layout = a_layout(options=Options(value_format="registry"))
    for number, value in enumerate(values):
        fill(redis_cluster, a_lane(layout, b"%d" % number, value))
    return layout.topic


def check_away(ask: Ask, topic: str, value: bytes = VALUE) -> dict[str, Any]:
    """The value under key 0 is unavailable, and that promptly; its bytes and its row are served."""
    with takes_about(BOUND_MS / 1000):
        answer = ask(f"/topics/{topic}/keys/0")
    problem, headers = json.loads(answer["body"]), headers_of(answer)
    assert (answer["statusCode"], problem["type"]) == (503, "urn:keylane:problem:registry-unavailable")
    assert headers["Retry-After"] == "1"
    assert headers["Keylane-Position"].endswith(":42")
    raw = ask(f"/topics/{topic}/keys/0", headers={"Accept": "application/octet-stream"})
    assert (raw["statusCode"], body_of(raw)) == (200, value)
    body = json.dumps({"keys": ["0", "0"]}).encode()
    rows = json.loads(ask(f"/topics/{topic}/keys:read", method="POST", body=body)["body"])["records"]
    for row in rows:
        assert (row["value_format"], base64.b64decode(row["value"])) == ("base64", value)
        assert row["schema_id"] == confluent.split(value).schema_id
        assert "Schema Registry" in row["undecoded"]
    return problem


def drip(out: Any) -> None:
    """Send a byte now and then, without end: each comes in time, the whole answer never."""
    out.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        out.write(b" ")
        out.flush()
        time.sleep(0.05)


def test_known_schemas_stay_known_while_the_registry_hangs_and_once_it_is_gone(
    function: Callable[..., Ask], redis_cluster: str
):
    unknown = confluent.join(8, b"\x06SFO")
    known, late = a_topic_of(redis_cluster, VALUE), a_topic_of(redis_cluster, unknown)
    with RegistryDouble() as registry:
        registry.has("/schemas/ids/7", {"schema": STRING})
        registry.answers["/schemas/ids/8"] = drip
        ask = function(registry.url)
        assert ask(f"/topics/{known}/keys/0")["statusCode"] == 200
        assert "in time" in check_away(ask, late, unknown)["detail"]
        assert ask(f"/topics/{known}/keys/0")["statusCode"] == 200

    def is_known_to_be_gone() -> bool:
        """Not before the registry is asked again, which it is not for a while after it has hung."""
        answer = ask(f"/topics/{late}/keys/0")
        assert answer["statusCode"] == 503
        return "can't be reached" in json.loads(answer["body"])["detail"]

    eventually(is_known_to_be_gone)
    assert ask(f"/topics/{known}/keys/0")["statusCode"] == 200


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((404, b"<html>no such page</html>"), "status 404"),
        ((404, b'{"message": "of a proxy"}'), "status 404"),
        ((500, b'{"error_code": 50001}'), "status 500"),
        ((401, b"{}"), "status 401"),
        ((302, b""), "status 302"),
        ((200, b"garbage"), "not JSON"),
        ((200, b"[1]"), "not a schema"),
        ((200, b"[" * 100_000), "not JSON"),
        ((200, b"{}"), "not a schema"),
        ((200, b'{"schema": 5}'), "not a schema"),
        ((200, b'{"schema": "1", "references": [5]}'), "not a schema"),
        ((200, b" " * 5_000_000), "more than"),
        (drip, "in time"),
        (lambda out: out.write(b"garbage\r\n\r\n"), "can't be reached"),
        (lambda out: out.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}"), "can't be reached"),
        (lambda _: None, "can't be reached"),
    ],
)
def test_registry_whose_answer_is_invalid_is_503(
    function: Callable[..., Ask], redis_cluster: str, bad_day: RegistryDouble, answer, why: str
):
    bad_day.answers["/schemas/ids/7"] = answer
    assert why in check_away(function(bad_day.url), a_topic_of(redis_cluster, VALUE))["detail"]


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"schema": "no avro"}, "Expecting value"),
        ({"schema": '{"type": "Unheard"}'}, "Unheard"),
        ({"schema": "x", "schemaType": "THRIFT"}, "THRIFT"),
        ({"schema": "message A {", "schemaType": "PROTOBUF"}, "ends within a statement"),
        ({"schema": "AAAA", "schemaType": "PROTOBUF"}, "neither the text of a .proto"),
        ({"schema": 'import "a.proto"; message A { B b = 1; }', "schemaType": "PROTOBUF"}, "a.proto"),
        ({"schema": "message A { B b = 1; }", "schemaType": "PROTOBUF"}, "not a complete Protobuf file"),
        ({"schema": "message A {" * 10_000, "schemaType": "PROTOBUF"}, "nested too deep"),
        ({"schema": '"string"', "references": [{"name": "a", "subject": "s", "version": 1}]}, "refers"),
    ],
)
def test_value_of_an_invalid_schema_is_422_and_is_served_as_bytes(
    function: Callable[..., Ask], redis_cluster: str, bad_day: RegistryDouble, document, why: str
):
    bad_day.has("/schemas/ids/7", document)
    bad_day.lacks("/subjects/s/versions/1")
    ask, topic = function(bad_day.url), a_topic_of(redis_cluster, VALUE)
    answer = ask(f"/topics/{topic}/keys/0")
    problem = json.loads(answer["body"])
    assert (answer["statusCode"], problem["type"]) == (422, "urn:keylane:problem:value-not-decodable")
    assert why in problem["detail"]
    assert body_of(ask(f"/topics/{topic}/keys/0", headers={"Accept": "application/octet-stream"})) == VALUE


def test_a_function_fetches_a_schema_once_and_retries_a_failed_one_once_a_request(
    function: Callable[..., Ask], redis_cluster: str, bad_day: RegistryDouble
):
    bad_day.has("/schemas/ids/7", {"schema": STRING})
    bad_day.lacks("/schemas/ids/8")
    ask = function(bad_day.url)
    topic = a_topic_of(redis_cluster, *[VALUE] * 30, *[confluent.join(8, b"")] * 30)
    body = json.dumps({"keys": [str(number) for number in range(60)]}).encode()
    for _ in range(2):
        rows = json.loads(ask(f"/topics/{topic}/keys:read", method="POST", body=body)["body"])["records"]
        assert [row["value"] for row in rows[:30]] == ["SFO"] * 30
        assert all("does not have schema 8" in row["undecoded"] for row in rows[30:])
    assert sorted(bad_day.asked) == ["/schemas/ids/7", "/schemas/ids/8", "/schemas/ids/8"]


def test_function_without_a_registry_says_that_none_is_configured(
    function: Callable[..., Ask], redis_cluster: str, caplog: pytest.LogCaptureFixture
):
    ask, topic = function("http://reader:hunter2@registry"), a_topic_of(redis_cluster, VALUE)
    answer = ask(f"/topics/{topic}/keys/0")
    assert (answer["statusCode"], json.loads(answer["body"])["type"]) == (
        500,
        "urn:keylane:problem:misconfigured",
    )
    assert "KEYLANE_SCHEMA_REGISTRY_URL" in caplog.text
    assert "hunter2" not in caplog.text + answer["body"]
    body = json.dumps({"keys": ["0"]}).encode()
    (row,) = json.loads(ask(f"/topics/{topic}/keys:read", method="POST", body=body)["body"])["records"]
    assert row["undecoded"] == "no Schema Registry is configured"


def test_credentials_are_sent_and_never_shown(
    function: Callable[..., Ask],
    redis_cluster: str,
    bad_day: RegistryDouble,
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.DEBUG)
    ask = function(bad_day.url, USERNAME="reader", PASSWORD="hunter2")
    topic = a_topic_of(redis_cluster, VALUE)
    check_away(ask, topic)
    expected = base64.b64encode(b"reader:hunter2").decode()
    assert set(bad_day.credentials) == {f"Basic {expected}"}
    assert "hunter2" not in caplog.text
    assert expected not in caplog.text


def test_registry_with_a_certificate_of_a_private_authority_is_reached_over_tls(tmp_path):
    certificate, key = certify(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with RegistryDouble(context) as served:
        served.has("/schemas/ids/7", {"schema": STRING})
        assert decoders(served.url, str(certificate)).decoder(7, deadline()).decode(b"\x06SFO") == '"SFO"'
        with pytest.raises(RegistryUnavailable, match="certificate could not be verified: "):
            decoders(served.url).decoder(7, deadline())


def test_circular_references_are_followed_once(bad_day: RegistryDouble):
    circle = {"schema": STRING, "references": [{"name": "a", "subject": "s/t", "version": 1}]}
    bad_day.has("/schemas/ids/7", circle)
    bad_day.has("/subjects/s%2Ft/versions/1", circle)
    decoder = decoders(bad_day.url).decoder(7, deadline())
    assert decoder.decode(b"\x06SFO") == '"SFO"'
    assert bad_day.asked == ["/schemas/ids/7", "/subjects/s%2Ft/versions/1?deleted=true"]
