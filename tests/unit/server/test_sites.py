"""Pages of the web that ask a server without tokens."""

from __future__ import annotations

import pytest

from keylane_server.received import FIELDS_LIMIT, KEY_PATH, ReceivedRequest
from keylane_server.sites import ForeignSite, OwnSites

CORS = {"Access-Control-Allow-Origin": "https://app.example.org"}


def request(
    method: str = "POST", query: bytes = b"", *given: tuple[str, str], **headers: str
) -> ReceivedRequest:
    pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return ReceivedRequest(
        {
            "method": method,
            "raw_path": b"/push",
            "query_string": query,
            "headers": [(name.encode(), value.encode()) for name, value in (*pairs, *given)],
            "client": ("127.0.0.1", 1),
        },
        "id",
    )


@pytest.mark.parametrize(
    ("address", "cors", "host", "expected"),
    [
        ("127.0.0.1", {}, "127.0.0.1:8080", True),
        ("127.0.0.1", {}, "LOCALHOST:8080", True),
        ("127.0.0.1", {}, "app.localhost", True),
        ("127.0.0.1", {}, "keylane", True),
        ("::1", {}, "[::1]:8080", True),
        ("127.0.0.1", {}, "192.168.1.7", True),
        ("127.0.0.1", {}, "rebind.evil.example:8080", False),
        ("localhost", {}, "localhost.evil.example", False),
        ("127.0.0.2", {}, "127.0.0.1.nip.io", False),
        ("127.0.0.1", {}, "evil.example.:80", False),
        ("127.0.0.1", {}, "a" * 1_000, False),
        ("127.0.0.1", CORS, "app.example.org", True),
        ("127.0.0.1", CORS, "evil.example", False),
        ("127.0.0.1", {"Access-Control-Allow-Origin": "*"}, "evil.example", True),
        ("0.0.0.0", {}, "api.example.org", True),  # noqa: S104 (an address to listen on)
    ],
)
def test_a_server_of_one_machine_is_asked_by_its_names(
    address: str, cors: dict[str, str], host: str, expected: bool
):
    sites = OwnSites(cors, address)
    assert sites.is_host(host) is expected
    if expected:
        sites.check(request("GET", host=host))
    else:
        with pytest.raises(ForeignSite, match="host"):
            sites.check(request("GET", host=host))


@pytest.mark.parametrize(
    ("headers", "is_refused"),
    [
        ({}, False),
        ({"origin": "http://evil.example"}, True),
        ({"origin": "null"}, True),
        ({"origin": "http://keylane:8080"}, False),
        ({"origin": "http://keylane:9999"}, True),
        ({"origin": "http://evil.example", "sec_fetch_site": "cross-site"}, True),
        ({"origin": "https://own.example", "sec_fetch_site": "same-origin"}, False),
        ({"origin": "http://keylane:8080", "sec_fetch_site": "cross-site"}, True),
        ({"origin": CORS["Access-Control-Allow-Origin"], "sec_fetch_site": "cross-site"}, False),
        ({"origin": "http://evil.example", "content_type": "application/json"}, True),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "GET", "OPTIONS", "PATCH"])
def test_a_write_of_another_sites_page_is_refused(headers: dict[str, str], is_refused: bool, method: str):
    sites = OwnSites(CORS, "0.0.0.0")  # noqa: S104
    asked = request(method, host="keylane:8080", **headers)
    asked.find_target("/push" if method == "POST" else "/topics/t/keys/k")
    if is_refused and method in {"POST", "PUT", "DELETE"}:
        with pytest.raises(ForeignSite, match="another site"):
            sites.check(asked)
    else:
        sites.check(asked)


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        (
            request("GET", b"", ("authorization", "Bearer a"), ("authorization", "Bearer b"), host="x"),
            "twice",
        ),
        (
            request("GET", b"", ("authorization", "Bearer a"), ("authorization", "Bearer a"), host="x"),
            "twice",
        ),
        (request("GET", b"", ("x-api-key", "a"), ("x-api-key", "b"), host="x"), "twice"),
        (request("GET", b"", ("accept", "a/b"), ("accept", "a/c"), host="x"), ""),
        (request("GET", b"a=1&" * FIELDS_LIMIT, host="x"), "parameters"),
        (request("GET", b"a=1&" * 100, host="x"), ""),
    ],
)
def test_a_head_that_has_two_meanings_is_refused(asked: ReceivedRequest, fault: str):
    found = asked.find_fault("1.1")
    assert fault in found if fault else not found


def test_a_query_is_parsed_once_somebody_asks():
    asked = request("GET", b"a=1&a=2&b=", host="x")
    assert asked._query is None
    assert asked.query == {"a": ["1", "2"], "b": [""]}


@pytest.mark.parametrize(("path", "is_plain"), [(b".", False), (b"..", False), (b"...", True), (b".a", True)])
def test_dots_are_no_plain_keys(path: bytes, is_plain: bool):
    assert bool(KEY_PATH.fullmatch(b"/topics/t/keys/" + path)) is is_plain
