"""Every operation of docs/openapi.json over HTTP, on the whole stack, by requests from schemathesis.

Valid ones and broken ones: no 5xx, no answer that the document does not describe, none that takes long.
The same requests each time: KEYLANE_SEED makes others, and a failure names it. It shows its request as a
curl command, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from pathlib import Path

import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from tests.e2e.client import Client, path_of
from tests.servers.own import eventually

import requests
from keylane.api.http.common_parameters import TOPIC_PATTERN
from keylane.api.reads import many as read_many
from keylane.api.reads.explore import LAST_PARTITION

SEED = int(os.environ.get("KEYLANE_SEED", "5"))
EXAMPLES = 10
LONGEST_S = 5
LONGEST_WAIT_S = 60
"""More than the product's longest time limit here, so that its own answer is seen."""
SILENT_REGISTRY = b"the Schema Registry did not answer in time"
TOPICS = ("anything", "something", "registered", "flights")
KEYS = ("object", "text", "bytes", "gone", "large", "a/b", "flüge", " ", "%", "\0")
VALUES = (b'{"a": {"b": 1.50}, "n": null}', b"a text", b"\xff\x00", None, b"x" * 2000)

# What is there for a parameter, and which of its texts stand for it.
KNOWN = {
    "topic": TOPICS,
    "topics": ("anything,something", "something,anything", "flights,anything"),
    "view": ("puts",),
    "key": KEYS,
    "as_of": ("0", "2100-01-01", "2026-11-21T10:00:00+01:00", "0:1"),
    "from": ("0", "2013-01-01"),
    "to": ("2100-01-01", "4102444800000"),
    "prefix": ("", "o", "fl"),
    "fields": ("a", "a.b,n"),
    "offset": ("earliest", "latest", "0", "1"),
    "at": ("earliest", "latest", "max", "0", "2026-11-21T10:00:00Z"),
}
ANY = re.compile(r".{0,200}", re.DOTALL)
SOUND = {
    "topic": re.compile(TOPIC_PATTERN),
    "topics": re.compile(read_many.NAMES),
    "offset": re.compile(r"earliest|latest|[0-9]{1,18}"),
    "Keylane-Min-Position": re.compile(r"[0-9]{1,18}:[0-9]{1,18}"),
}

CONFIG = {
    "seed": SEED,
    "generation": {"deterministic": True, "max-examples": EXAMPLES, "allow-extra-parameters": False},
    "output": {"sanitization": {"enabled": False}},
    "checks": {
        "max_response_time": LONGEST_S,
        # 501 and 503 are looked at below; a schema can't describe a cursor, or that `to` is not below `from`.
        "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "501", "503"]},
        "positive_data_acceptance": {"enabled": False},
        "negative_data_rejection": {
            "expected-statuses": [
                "400",
                # A name that begins with "_" is refused before anybody looks at the rest of it.
                "403",
                "404",
                "405",
                "409",
                "410",
                "412",
                "413",
                "414",
                "415",
                "422",
                "429",
                # The stack's functions stream nothing, whatever the request says.
                "501",
                "503",
            ]
        },
    },
    "phases": {
        "coverage": {
            "generate-duplicate-query-parameters": True,
            "extra-data-sources": {"responses": False},
        },
        "fuzzing": {"extra-data-sources": {"responses": False}, "error-feedback": {"enabled": False}},
    },
}
LONGEST_PATH = 65_500
"""Less than 64 KiB with the rest of the request line."""
DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"

schemathesis.openapi.media_type("application/octet-stream", st.binary(max_size=2000))
document = schemathesis.pytest.from_fixture("openapi")
"""Its requests are made by the tests. At the import, each process that collects them would make them all."""


@pytest.fixture(scope="module")
def openapi():
    return schemathesis.openapi.from_path(str(DOCUMENT), config=SchemathesisConfig.from_dict(CONFIG))


@pytest.fixture(scope="module")
def served(stack, lambda_url, registry):
    """The URLs, with records of all kinds, and with a registry for those with schemas."""
    with contextlib.closing(Client(stack.http_url)) as client:
        for topic in TOPICS[:3]:
            for number, key in enumerate(map(str.encode, KEYS)):
                value = VALUES[number % len(VALUES)]
                # Readers of one of the topics could not read these values.
                answer = client.request("PUT", path_of(topic, key) + "?raw=true", value or b"")
                assert answer.status == 201, answer.body
                if value is None:
                    answer = client.request("DELETE", path_of(topic, key))
            client.get_at(topic, key, answer.json["position"])
    with requests.Session() as session:
        yield stack.http_url, lambda_url, session


def check(case, served) -> None:
    server_url, lambda_url, session = served
    aim(case)
    # The server's streams have no end: a function says so at once.
    url = lambda_url if case.operation.path.endswith("/changes") else server_url
    answer = ask(case, url, session)
    if len(answer.request.path_url) > LONGEST_PATH:
        # The server's HTTP library answers itself; API Gateway takes 10 KiB.
        assert 400 <= answer.status_code < 500
        return
    case.validate_response(answer)
    if answer.status_code == 501:
        assert case.operation.path.endswith("/changes"), answer.content
    assert answer.status_code != 503, answer.content
    assert b"Traceback" not in answer.content


def ask(case, url: str, session: requests.Session):
    """Send the request, and again while the registry is silent.

    Twice in some hundred runs on busy machines it left one request without an answer for 20 s, which is the
    time limit of these tests. The product's answer to that has tests of its own (integration/registry).
    """
    answers = []

    def is_answered() -> bool:
        answers.append(case.call(url, session, timeout=LONGEST_WAIT_S))
        return SILENT_REGISTRY not in answers[-1].content

    eventually(is_answered)
    return answers[-1]


def operation_ids() -> list[str]:
    paths = json.loads(DOCUMENT.read_text(encoding="utf-8"))["paths"]
    return [
        operation["operationId"]
        for path in paths.values()
        for operation in path.values()
        if "operationId" in operation
    ]


def _of(operation_id: str):
    @document.include(operation_id=operation_id).parametrize()
    def test_every_generated_request_is_answered_as_documented(case, served):
        try:
            check(case, served)
        except Exception as error:
            error.add_note(f"KEYLANE_SEED={SEED}")
            raise

    return test_every_generated_request_is_answered_as_documented


for name in operation_ids():
    # A function for each: one for all would give all its tests the same id.
    test = _of(name)
    # HEAD is GET without a body, which tests/contract/hosts shows of each route.
    globals()[f"test_any_request_to_{name}_is_answered_as_the_document_says"] = (
        pytest.mark.long(test) if name.startswith("head_") else test
    )


def aim(case) -> None:
    """Replace most generated strings by existing names: few generated ones would exist.

    Texts that it does not allow stay: they are too long, none at all, or no text.
    """
    for source in (case.path_parameters, case.query):
        for parameter, known in KNOWN.items():
            number = zlib.crc32(f"{parameter} {source.get(parameter)}".encode(errors="replace"))
            if is_sound(source, parameter) and number % 16:
                source[parameter] = known[number // 16 % len(known)]
    number = case.path_parameters.get("partition")
    if type(number) is int and 0 <= number <= LAST_PARTITION and number % 8:
        case.path_parameters["partition"] = number % 2
    aim_records(case.body)
    if is_sound(case.query, "cursor"):
        del case.query["cursor"]
    # Of these the document can't say that one excludes the other.
    if {"from", "to"} & case.query.keys() and is_sound(case.query, "prefix"):
        del case.query["prefix"]
    if "min_offset" in case.query and is_sound(case.query, "as_of"):
        del case.query["as_of"]
    if {"min_offset", "as_of"} & case.query.keys() and is_sound(case.headers, "Keylane-Min-Position"):
        del case.headers["Keylane-Min-Position"]
    if len(str(case.headers.get("Prefer", ""))) <= 1000:
        # A position that never comes is waited for, 5 s by default.
        case.headers["Prefer"] = "wait=0.05"


def aim_records(body) -> None:
    """Replace the topics of most pushed records by existing ones."""
    records = body.get("records") if isinstance(body, dict) else None
    for record in records if isinstance(records, list) else ():
        if isinstance(record, dict) and isinstance(record.get("topic"), str):
            number = zlib.crc32(record["topic"].encode(errors="replace"))
            record["topic"] = TOPICS[number % len(TOPICS)] if number % 4 else record["topic"]


def is_sound(source, parameter: str) -> bool:
    text = source.get(parameter)
    return isinstance(text, str) and SOUND.get(parameter, ANY).fullmatch(text) is not None
