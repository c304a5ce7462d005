"""One table of cases for the clients of Python and TypeScript, and Python's fake: they do not drift."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.support.client_cases import FAKE_FIELDS, FAKE_TOPICS, asynchronous, run_cases
from tests.support.node import run_node

from keylane_client import AsyncClient, Client
from keylane_client.testing import FakeKeylane

HERE = Path(__file__).parent
CASES = json.loads((HERE / "client_cases.json").read_text(encoding="utf-8"))
NAMES = [case["name"] for case in CASES]
FAKED = [case["name"] for case in CASES if case.get("faked", True)]
OF_STACK = ["python", "python asynchronous", "python of the functions", "typescript"]
FAKES = ["fake", "fake asynchronous"]


@pytest.fixture(scope="module")
def answers(applied_stack, lambda_url) -> dict[str, list[Any]]:
    """What each client answers to all cases, each with keys of its own. The functions stream nothing."""
    url, run = applied_stack.http_url, uuid.uuid4().hex[:8]
    clients = {
        "python": Client(url),
        "python asynchronous": asynchronous(AsyncClient(url)),
        "python of the functions": Client(lambda_url),
    }
    found = {
        name: run_cases(client, f"{name.replace(' ', '-')}-{run}", CASES) for name, client in clients.items()
    }
    given = json.dumps({"url": url, "prefix": f"ts-{run}", "cases": CASES})
    return found | {"typescript": json.loads(run_node(HERE / "client_cases.ts", given=given))}


@pytest.fixture(scope="module")
def answers_of_fakes() -> dict[str, list[Any]]:
    """What the clients answer of the fake that users have for their tests."""
    fake = FakeKeylane(FAKE_TOPICS, fields=FAKE_FIELDS)
    clients = (fake.client(), asynchronous(fake.async_client()))
    cases = [case for case in CASES if case["name"] in FAKED]
    return {name: run_cases(client, name, cases) for name, client in zip(FAKES, clients, strict=True)}


def differences(case: Any, answer: Any, *, is_fake: bool = False) -> list[Any]:
    """Return the steps whose results are not what the table says. A fake's tags have no time."""
    found = []
    for step, result in zip(case["steps"], answer["results"], strict=True):
        if "expect" not in step:
            assert "error" not in (result if isinstance(result, dict) else {}), (step, result)
            continue
        wanted = json.dumps(step["expect"]).replace("{key}", answer["key"])
        if is_fake:
            wanted = wanted.replace('"etag": true', '"etag": false')
        if not matches(json.loads(wanted), result, answer["saved"]):
            found.append({"step": step, "result": result})
    return found


@pytest.mark.parametrize("client", OF_STACK)
@pytest.mark.parametrize("name", NAMES)
def test_each_step_of_a_case_answers_what_the_table_says(answers, name, client):
    index = NAMES.index(name)
    assert differences(CASES[index], answers[client][index]) == []


@pytest.mark.parametrize("client", FAKES)
@pytest.mark.parametrize("name", FAKED)
def test_each_step_of_a_case_answers_the_same_by_the_fake(answers_of_fakes, name, client):
    answer = answers_of_fakes[client][FAKED.index(name)]
    assert differences(CASES[NAMES.index(name)], answer, is_fake=True) == []


@pytest.mark.parametrize("name", NAMES)
def test_both_clients_answer_a_case_with_the_same(answers, name):
    index = NAMES.index(name)
    python, typescript = (comparable(CASES[index], answers[each][index]) for each in ("python", "typescript"))
    assert python == typescript


def matches(wanted: Any, result: Any, saved: dict[str, Any]) -> bool:
    """Whether a result has what the table says: of an object the members that it names."""
    if wanted == "a number":
        return isinstance(result, int)
    if isinstance(wanted, str) and wanted.startswith("="):
        return result == saved[wanted[1:]]["position"]
    if isinstance(wanted, list) and isinstance(result, list):
        if wanted[-1:] == ["*"]:
            wanted, result = wanted[:-1], result[: len(wanted) - 1]
        pairs = zip(wanted, result, strict=False)
        return len(wanted) == len(result) and all(matches(*pair, saved) for pair in pairs)
    if isinstance(wanted, dict) and isinstance(result, dict):
        return all(name in result and matches(each, result[name], saved) for name, each in wanted.items())
    return wanted == "*" or (wanted == result and isinstance(wanted, bool) == isinstance(result, bool))


def comparable(case: Any, answer: Any) -> list[Any]:
    """Return a case's results without what differs between runs: keys, positions, and numbers of all keys."""
    steps = zip(case["steps"], answer["results"], strict=True)
    results = [None if step.get("expect") == "a number" else result for step, result in steps]
    text = json.dumps(results).replace(answer["key"], "KEY")
    return json.loads(re.sub(r'("position": )"\d+:\d+"', r'\1"P"', text))
