"""What a trial in an account showed, as a page: `python -m keylane_build.smoke_page --stack S --to smoke.md`.

The page has the steps of `keylane smoke`, how long CloudFormation took for what, and the questions of
docs/operate/deploy.md that only an account can answer, each with what AWS said. A command that changes
something, or that needs a value which the stack does not have, is listed as not asked.
"""

import argparse
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from keylane_build.generated import render_table
from keylane_local.tools import project_root

PAGE = Path("docs", "operate", "deploy.md")
SECTION = "## What only an account can show"
READS = ("describe-", "filter-log-events", "get-", "list-", "tail", "validate-template")
"""How the operations begin that change nothing."""
ANSWER_LIMIT = 400
SLOWEST = 15
_TIMEOUT_S = 60
_ROW = re.compile(
    r"^\| (?P<question>[^|]+) \| (?P<command>`aws [^`]+`[^|]*) \| (?P<expected>[^|]+) \|$", re.MULTILINE
)
_PLACEHOLDER = re.compile(r"\b(?!AWS\b|SECURE_)[A-Z][A-Z_]{1,}\b")
_ACCOUNT = re.compile(r"\b\d{12}\b")
_OF_THE_PAGE = re.compile(r"(/keylane/|/aws/lambda/|Keylane/|--user-id )keylane\b")
"""Where the page's commands have the stack's name."""

Ask = Callable[[Sequence[str]], str]
"""Runs a command of AWS and returns what it printed, errors too."""


@dataclass(frozen=True, slots=True)
class Question:
    """A row of the page: the question, the command that answers it, and the answer to expect."""

    question: str
    command: str
    expected: str


def read_questions(page: str) -> list[Question]:
    """Return the questions of the page's tables whose answer is a command of AWS."""
    _, _, section = page.partition(SECTION)
    return [
        Question(row["question"], row["command"].split("`")[1], row["expected"])
        for row in _ROW.finditer(section.partition("\n## ")[0])
    ]


def fill(command: str, stack: str, values: dict[str, str]) -> str | None:
    """Return the command for a stack; None if it changes something, or needs a value that is not known."""
    operation = shlex.split(command)[2]
    if not operation.startswith(READS):
        return None
    filled = _OF_THE_PAGE.sub(lambda found: found[1] + stack, command)
    for name, value in values.items():
        filled = re.sub(rf"\b{name}\b", value, filled)
    return None if _PLACEHOLDER.search(filled) else filled


def read_values(stack: str, ask: Ask) -> dict[str, str]:
    """Return the values of the placeholders, as far as the stack has them."""
    outputs = _outputs(stack, ask)
    values = {"ARN": outputs.get("KafkaClusterArn")}
    resources = _read(ask, "describe-stack-resources", stack).get("StackResources", [])
    for each in resources:
        if each["LogicalResourceId"] == "Pipeline":
            values["GROUP"] = _outputs(each["PhysicalResourceId"], ask).get("LogGroup")
    return {name: value for name, value in values.items() if value}


def render(stack: str, smoke: dict[str, Any] | None, page: str, ask: Ask) -> str:
    """Return the page. `smoke`: what `keylane smoke --json` printed; None if it did not run."""
    events = _read(ask, "describe-stack-events", stack).get("StackEvents", [])
    parts = [f"# {stack}", "", _verdict(smoke), ""]
    if smoke:
        steps = [(each["name"], each["took_ms"], each["fault"] or each["did"]) for each in smoke["steps"]]
        parts += ["## keylane smoke", "", *_table(("step", "ms", "what it saw"), steps), ""]
    failed = [
        (each["LogicalResourceId"], each["ResourceStatus"], each.get("ResourceStatusReason", ""))
        for each in events
        if "FAILED" in each["ResourceStatus"]
    ]
    if failed:
        parts += ["## What failed", "", *_table(("resource", "status", "reason"), failed), ""]
    took = sorted(durations(events).items(), key=lambda each: -each[1])[:SLOWEST]
    parts += ["## How long it took", "", *_table(("resource", "s"), took), ""]
    values = read_values(stack, ask)
    answers, open_ones = [], []
    for each in read_questions(page):
        command = fill(each.command, stack, values)
        if command is None:
            open_ones.append((each.question, f"`{each.command}`"))
        else:
            answer = " ".join(ask(shlex.split(command)).split())[:ANSWER_LIMIT]
            answers.append((each.question, f"`{command}`", each.expected, answer or "nothing"))
    heads = ("question", "command", "answer to expect", "what AWS said")
    parts += ["## What AWS said", "", *_table(heads, answers), ""]
    parts += ["## Not asked", "", *_table(("question", "command"), open_ones), ""]
    return _ACCOUNT.sub("ACCOUNT", "\n".join(parts))


def durations(events: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the seconds from the first event of each resource to its last complete one."""
    times: dict[str, list[tuple[datetime, str]]] = {}
    for each in events:
        when = datetime.fromisoformat(each["Timestamp"])
        times.setdefault(each["LogicalResourceId"], []).append((when, each["ResourceStatus"]))
    found = {}
    for name, seen in times.items():
        ends = [when for when, status in seen if status in {"CREATE_COMPLETE", "UPDATE_COMPLETE"}]
        if ends:
            found[name] = round((max(ends) - min(when for when, _ in seen)).total_seconds())
    return found


def _verdict(smoke: dict[str, Any] | None) -> str:
    if smoke is None:
        return "**`keylane smoke` did not run.**"
    return "**All is well.**" if smoke["ok"] else "**Something is wrong.**"


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table whose cells may have any text."""
    return render_table(heads, ([str(each).replace("|", r"\|") for each in row] for row in rows))


def _outputs(stack: str, ask: Ask) -> dict[str, str]:
    found = _read(ask, "describe-stacks", stack).get("Stacks") or [{}]
    return {each["OutputKey"]: each["OutputValue"] for each in found[0].get("Outputs", [])}


def _read(ask: Ask, operation: str, stack: str) -> dict[str, Any]:
    """Return a document of CloudFormation about a stack; {} where it says something else."""
    try:
        found = json.loads(
            ask(("aws", "cloudformation", operation, "--stack-name", stack, "--output", "json"))
        )
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def ask_aws(command: Sequence[str]) -> str:
    """Run a command; return what it printed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"no answer within {_TIMEOUT_S} s"
    return done.stdout + done.stderr


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="keylane_build.smoke_page")
    parser.add_argument("--stack", required=True, help="the stack's name")
    parser.add_argument("--smoke", type=Path, help="what `keylane smoke --json` printed")
    parser.add_argument("--to", type=Path, required=True, help="the page")
    options = parser.parse_args()
    text = options.smoke.read_text(encoding="utf-8") if options.smoke and options.smoke.exists() else ""
    page = (project_root() / PAGE).read_text(encoding="utf-8")
    smoke = json.loads(text) if text.strip() else None
    options.to.write_text(render(options.stack, smoke, page, ask_aws), encoding="utf-8")


if __name__ == "__main__":
    main()
