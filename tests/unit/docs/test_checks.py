"""The checks of documents: each finds what it is for, and lets pass what is right."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.unit.docs import console, documents
from tests.unit.docs.documents import CELL_LIMIT, Document

if TYPE_CHECKING:
    from tests.unit.docs.documents import Fault


def texts(faults: list[Fault]) -> list[str]:
    return [fault.text for fault in faults]


@pytest.mark.parametrize(
    ("link", "fault"),
    [
        ("[a](missing.md)", "missing.md: there is no such file"),
        ("[a](there.md#nowhere)", "there.md#nowhere: there is no such heading"),
        ("[a](#nowhere)", "#nowhere: there is no such heading"),
        ("![a [b]](missing.png)", "missing.png: there is no such file"),
        ("| [a](missing.md) |", "missing.md: there is no such file"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(link: str, fault: str):
    page = Document(f"# Title\n\n{link}\n")
    assert texts(documents.link_faults(page, lambda path: path == "there.md", lambda _: {"here"})) == [fault]


@pytest.mark.parametrize(
    "link",
    [
        "[a](there.md)",
        "[a](there.md#here)",
        "[a](#a-title-in-code)",
        "[a](#twice-1)",
        "[a](https://example.org/x)",
        "`[a](missing.md)`",
        "```text\n[a](missing.md)\n```",
        "<!-- [a](missing.md) -->",
    ],
)
def test_a_link_that_leads_somewhere_is_none(link: str):
    page = Document(f"# A *title*, in `code`!\n\n## Twice\n\n## Twice\n\n{link}\n")
    assert not documents.link_faults(page, lambda path: path == "there.md", lambda _: {"here"})


def test_an_anchor_is_made_as_github_makes_it():
    assert documents.slug("`PUT`, `DELETE` of [a key](x.md): 3 → 4") == "put-delete-of-a-key-3--4"


@pytest.mark.parametrize(
    ("block", "faults"),
    [
        ("$ make unit tests", ["make tests: there is no such target"]),
        ("$ make unit N=3 -j", []),
        ("$ keylane fly", ["keylane fly: there is no such command"]),
        ("$ .venv/bin/keylane up --shards 3", []),
        ("$ cd x && make nothing", ["make nothing: there is no such target"]),
        ("$ make unit   # some words", []),
    ],
)
def test_a_command_that_is_not_there_is_found(block: str, faults: list[str]):
    found = []
    for command in console.commands(Document(f"```console\n{block}\n```\n")):
        if command.words[0] == "make":
            found += console.make_faults(command, {"unit"})
        elif command.words[0].endswith("keylane"):
            found += console.keylane_faults(command, {"up"})
    assert texts(found) == faults


PATHS = {
    "/topics/{topic}/keys/{key}": {"get": {"parameters": [{"in": "query", "name": "fields"}]}, "put": {}},
    "/topics/{topic}/keys:read": {"post": {}},
}


@pytest.mark.parametrize(
    ("block", "faults"),
    [
        ("$ curl localhost:8080/topics/t/keys/k", []),
        ("$ curl -si 'localhost:8080/topics/t/keys/k?fields=a' -H 'Accept: text/plain'", []),
        ("$ curl -X PUT localhost:8080/topics/t/keys/k -d '{}'", []),
        ("$ curl localhost:8080/topics/t/keys:read -d '{\"keys\":\n   []}'\n{}", []),
        ("$ curl localhost:8080/topics/t/keys:read \\\n   -d '{}'", []),
        ("$ curl $URL/topics/t/keys/k", []),
        ("$ curl https://a1.execute-api.eu-west-1.amazonaws.com/v1/topics/t/keys/k", []),
        ("$ curl localhost:8081/subjects", []),
        ("$ curl localhost:8080/metrics", []),
        ("$ curl localhost:8080/tropics/t", ["GET /tropics/t: there is no such route"]),
        ("$ curl localhost:8080/v1/topics/t/keys/k", ["GET /v1/topics/t/keys/k: there is no such route"]),
        ("$ curl $URL/tropics/t", ["GET /tropics/t: there is no such route"]),
        (
            "$ curl -X DELETE localhost:8080/topics/t/keys/k",
            ["DELETE /topics/t/keys/k: there is no such route"],
        ),
        ("$ curl localhost:8080/topics/t/keys/k -d x", ["POST /topics/t/keys/k: there is no such route"]),
        ("$ curl -I localhost:8080/topics/t/keys/k", ["HEAD /topics/t/keys/k: there is no such route"]),
        ("$ curl -d {} localhost:8080/metrics", ["POST /metrics: there is no such route"]),
        (
            "$ curl localhost:8080/topics/t/keys/k?field=a",
            ["/topics/{topic}/keys/{key} has no parameter 'field'"],
        ),
        ('$ curl localhost:8080/topics/t/keys/k\n{"a": 1}', []),
        ('$ curl localhost:8080/topics/t/keys/k\n{"a": 1}\n\n$ make unit\n{', []),
        ('$ curl localhost:8080/topics/t/keys/k\n{"a": ...}', []),
        (
            '$ curl -i localhost:8080/topics/t/keys/k\nHTTP/1.1 200 OK\n\n{"a": 1,}',
            ["the answer is not valid JSON: Illegal trailing comma before end of object at 7"],
        ),
    ],
)
def test_a_request_or_an_answer_that_is_wrong_is_found(block: str, faults: list[str]):
    commands = console.commands(Document(f"text\n\n```console\n{block}\n```\n"))
    found = [
        fault
        for command in commands
        if command.words[0] == "curl"
        for fault in console.curl_faults(command, PATHS)
    ]
    assert [re.sub(r"JSON: .*", "JSON", each) for each in texts(found)] == [
        re.sub(r"JSON: .*", "JSON", each) for each in faults
    ]


def test_a_long_cell_is_found_and_a_long_address_is_none():
    long = "x" * (CELL_LIMIT + 1)
    assert len(documents.cell_faults(Document(f"| a | b |\n| --- | --- |\n| {long} | b |\n"))) == 1
    assert not documents.cell_faults(Document(f"| a | [b]({long}) |\n| a \\| {long[20:]} | c |\n{long}\n"))


@pytest.mark.parametrize(
    "sentence",
    [
        "The index is built anew.",
        "The reader is told so.",
        "It tells how fresh it is.",
        "This is no JSON.",
        "It is none of the fields.",
        "These errors are none of ours.",
        "The gravest error wins.",
        "The fate of a record.",
        "A whole number.",
        "The record that was in force.",
        "The key's home.",
    ],
)
def test_a_word_that_is_not_of_the_field_is_found(sentence: str):
    assert len(documents.word_faults(Document(sentence))) == 1


@pytest.mark.parametrize(
    "sentence",
    [
        "`anew` is not used.",
        "```\nanew\n```",
        "<!-- anew -->",
        "[renewed](anew.md), and a fateful hotel",
        "Each record is read again.",
        "The batch is made up of records.",
    ],
)
def test_a_word_that_is_quoted_or_part_of_another_is_none(sentence: str):
    assert not documents.word_faults(Document(sentence))


def test_a_file_that_does_not_exist_is_found():
    page = Document(
        "`keylane/api/http/router.py`, `api/http/router.py`, `docs/there.md`, `keylane/api/missing.py`, "
        "`GET /a.json`"
    )
    there = {"docs/there.md", "layers/keylane/python/keylane/api/http/router.py"}
    assert texts(documents.file_faults(page, there.__contains__)) == [
        "keylane/api/missing.py: there is no such file"
    ]


def test_a_makefile_has_the_targets_before_its_colons():
    variables = "PY := python3\nflags := y\nBIN ?= x\n"
    text = f"{variables}.PHONY: a\nsetup: a  ## Words\nbench-a bench-b: bench-%: setup\n\tx: y\n"
    assert console.makefile_targets(text) == {"setup", "bench-a", "bench-b"}


def test_a_text_that_is_too_long_is_found():
    assert texts(documents.length_faults("a\n" * 4, 3)) == ["4 lines are more than 3"]
    assert not documents.length_faults("a\n" * 3, 3)


@pytest.mark.parametrize(
    ("index", "faults"),
    [
        ("- 2026-11-21 [Keys, hashed](a.md#keys-hashed)", []),
        ("", ["a.md#keys-hashed of 2026-11-21 is not listed"]),
        (
            "- 2026-11-22 [Keys, hashed](a.md#keys-hashed)",
            ["a.md#keys-hashed of 2026-11-21 is not listed", "a.md#keys-hashed of 2026-11-22 is no decision"],
        ),
    ],
)
def test_a_decision_that_the_index_lacks_is_found(index: str, faults: list[str]):
    pages = {"a.md": "# A\n\n## Keys, hashed\n\n_2026-11-21_\n\ntext\n"}
    assert texts(documents.index_faults(f"# Index\n\n{index}\n", pages)) == faults


def test_a_decision_without_a_date_is_found():
    assert texts(documents.index_faults("", {"a.md": "# A\n\n## Keys\n\ntext\n"})) == [
        "a.md has a decision without a date"
    ]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("`test_a.py::test_x`, `::test_y`, `test_b.py`", []),
        ("`test_c.py`", ["test_c.py: there is no such file of tests"]),
        ("`test_a.py::test_z`", ["test_a.py has no test_z"]),
        ("`test_a.py::test_x`, `::test_z`", ["test_a.py has no test_z"]),
    ],
)
def test_a_citation_of_a_test_that_does_not_exist_is_found(text: str, faults: list[str]):
    tests = {"test_a.py": "def test_x():\ndef test_y(broker):\n", "test_b.py": ""}
    found = documents.citation_faults(documents.Document(text), tests)
    assert [fault.text for fault in found] == faults
