"""One table of cases for the Python and the TypeScript client, on the whole stack: they do not drift."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.support.client_cases import run_cases
from tests.support.node import run_node

HERE = Path(__file__).parent
CASES = json.loads((HERE / "client_cases.json").read_text(encoding="utf-8"))
NAMES = [case["name"] for case in CASES]


@pytest.fixture(scope="module")
def answers(applied_stack) -> dict[str, list[Any]]:
    """What the clients of both languages answer to all cases, each with keys of its own."""
    url, run = applied_stack.http_url, uuid.uuid4().hex[:8]
    given = json.dumps({"url": url, "prefix": f"ts-{run}", "cases": CASES})
    typescript = json.loads(run_node(HERE / "client_cases.ts", given=given))
    return {"python": run_cases(url, f"py-{run}", CASES), "typescript": typescript}


@pytest.mark.parametrize("language", ["python", "typescript"])
@pytest.mark.parametrize("name", NAMES)
def test_each_step_of_a_case_answers_what_the_table_says(answers, name, language):
    index = NAMES.index(name)
    answer = answers[language][index]
    differences = []
    for step, result in zip(CASES[index]["steps"], answer["results"], strict=True):
        if "expect" not in step:
            assert "error" not in (result if isinstance(result, dict) else {}), (step, result)
            continue
        wanted = json.loads(json.dumps(step["expect"]).replace("{key}", answer["key"]))
        if not matches(wanted, result, answer["saved"]):
            differences.append({"step": step, "result": result})
    assert differences == []


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
