"""The documented requests of REST Proxy, and what HTTP asks of every server, on the whole stack."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.compat.cases import check_answer, fill, load_cases, names_of
from tests.compat.targets import SCHEMA_TOPICS, Registrar, write_record

if TYPE_CHECKING:
    from collections.abc import Callable

    Send = Callable[..., tuple[int, str, bytes]]

CASES = {**load_cases("rest_proxy"), **load_cases("http")}


@pytest.fixture(scope="module")
def send(stack) -> Send:
    def ask(method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str, bytes]:
        parts = urlsplit(stack.http_url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        connection.request(method, path, body if method in {"POST", "PUT"} else None, headers)
        answer = connection.getresponse()
        found = answer.status, answer.headers["Content-Type"], answer.read()
        connection.close()
        return found

    return ask


@pytest.fixture(scope="module")
def known(send: Send, stack: Any) -> dict[str, str]:
    _, _, body = send("GET", "/v3/clusters", b"", {})
    cluster = json.loads(body)["data"][0]["cluster_id"]
    record = write_record(stack.http_url.rstrip("/"), "flights")
    return {"topic": "flights", **SCHEMA_TOPICS, "cluster": cluster, **record}


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_the_documented_one(name: str, send: Send, known: dict[str, str], registry: Any):
    case = CASES[name]
    names = names_of(case, known, Registrar(registry.client).register)
    answer = send(case.method, fill(case.path, names), case.request_body(names), fill(case.headers, names))
    check_answer(case, names, *answer)
