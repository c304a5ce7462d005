"""A change of keylane.toml, from the command `keylane up` until what it adds answers over HTTP, in seconds.

The stack is the demo's, without its records. A new topic answers once a record of it is read; an index, which
needs a new generation of a topic of 1,000 records, once a page of keys is; a view once its sums are. For
these the job goes on. The reference is a setting of `[job]`, for which it starts again, until a new record is
read.

`told` is the time until `keylane up` says what the file changes, `ready` that until the job serves it,
`returned` that until the command ends: medians, all from the command's start.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import httpx
from harness import ROOT, ResultRow, parse, report, spread
from stage import whole_stack

from keylane_local.stack.plan import StackOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from keylane_local.stack.stack import Stack

TOPIC, INDEX, VIEW, PROCESS = "a new topic", "an index: a new generation", "a new view", "a setting of [job]"
AS_BY_UP = StackOptions(metrics=True)
"""Else the first command would find other settings, and start the job again."""
STEPS = ("told", "ready", "returned")
RECORDS = 1_000
ANSWER_S = 300.0
POLL_S = 0.02
JSON = {"Content-Type": "application/json"}
JSON_RECORDS = {"Content-Type": "application/vnd.kafka.json.v2+json"}
LINE = re.compile(r" *\d+\.\d s +job +(.*)$")


class Api:
    """The stack's server. Each request is repeated until its answer has the expected status."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def ask(self, path: str, method: str = "GET", status: int = 200, **more: Any) -> dict[str, Any]:
        until_s = time.monotonic() + ANSWER_S
        while (answer := self._client.request(method, path, **more)).status_code != status:
            if time.monotonic() > until_s:
                sys.exit(f"{method} {path} is still {answer.status_code}: {answer.text}")
            time.sleep(POLL_S)
        found: dict[str, Any] = answer.json()
        return found

    def write(self, topic: str) -> str:
        """Write a record under "k"; return its position."""
        value = b'{"group": "g", "size": 2}'
        answer = self.ask(f"/topics/{topic}/keys/k", "PUT", 201, content=value, headers=JSON)
        return str(answer["position"])

    def read(self, topic: str, position: str) -> None:
        wanted = {"Keylane-Min-Position": position, "Prefer": "wait=20"}
        self.ask(f"/topics/{topic}/keys/k", headers=wanted)

    def settle(self) -> None:
        """Wait until the job has begun with all that it has: a flight of now is in its window."""
        origin = f"A{time.monotonic_ns()}"
        flight = {"origin": origin, "time_hour": "2013-07-04T10:00:00Z", "dep_delay": 1}
        self.ask("/topics/flights/keys/N1", "PUT", 201, json=flight)
        self.see("departures", origin)

    def see(self, view: str, key: str) -> None:
        """Wait until a view has a window of this key."""
        until_s = time.monotonic() + ANSWER_S
        while not self.ask(f"/views/{view}/keys/{key}?partial=true")["windows"]:
            if time.monotonic() > until_s:
                sys.exit(f"the view {view} still has no window of {key}")
            time.sleep(POLL_S)

    def fill(self, topic: str) -> None:
        """Write many records, and read the last."""
        rows = [{"key": f"k{number}", "value": {"group": "g", "size": 2}} for number in range(RECORDS)]
        self.ask(f"/topics/{topic}", "POST", json={"records": rows}, headers=JSON_RECORDS)
        self.read(topic, self.write(topic))


def change(stack: Stack, api: Api, text: str, answers: Callable[[], object]) -> dict[str, float]:
    """Write a changed file, run `keylane up`, wait for the answer; return the seconds until each step."""
    assert stack.config
    api.settle()
    stack.config.write_text(text, encoding="utf-8")
    given = "--config", str(stack.config), "--data-dir", str(stack.data)
    began_s, steps = time.monotonic(), {}
    with subprocess.Popen(
        [sys.executable, "-m", "keylane_client.cli", "up", *given], stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout
        for line in command.stdout:
            if found := LINE.match(line):
                steps["ready" if found[1] == "ready" else "told"] = time.monotonic() - began_s
    if command.returncode:
        sys.exit(f"keylane up ended with {command.returncode}")
    steps["returned"] = time.monotonic() - began_s
    answers()
    steps["answers"] = time.monotonic() - began_s
    print({name: round(seconds, 1) for name, seconds in steps.items()}, flush=True)
    return steps


def measure(stack: Stack, api: Api, text: str, number: int) -> tuple[str, dict[str, dict[str, float]]]:
    """Make each of the changes once; return the file as it is then, and the seconds of each change."""
    topic, view = f"added-{number}", f"sums-{number}"
    found = {}
    table = f"\n[topics.{topic}]\npartitions = 9\n"
    found[TOPIC] = change(stack, api, text + table, lambda: api.read(topic, api.write(topic)))
    api.fill(topic)
    text += f"{table}index = true\n"
    found[INDEX] = change(stack, api, text, lambda: api.ask(f"/topics/{topic}/keys?from=k&limit=1"))
    text += f'[views.{view}]\ntopic = "{topic}"\nkey = "group"\ncolumns = {{ sum = "sum(size)" }}\n'
    found[VIEW] = change(stack, api, text, lambda: api.see(view, "g"))
    job = "[job]\nheartbeat_ms = {}\n"
    text = job.format(501 + number) + text.removeprefix(job.format(500 + number))
    found[PROCESS] = change(stack, api, text, lambda: api.read(topic, api.write(topic)))
    return text, found


def row_of(name: str, samples: Sequence[Mapping[str, float]]) -> ResultRow:
    """The spread until the answer, and the median of each step."""
    steps = {step: spread([each[step] for each in samples])["median"] for step in STEPS}
    return ResultRow(name, spread([each["answers"] for each in samples]) | steps)


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    chosen = parse(options, arguments)
    text, rounds = (ROOT / "keylane.toml").read_text("utf-8"), []
    with (
        whole_stack(text, options=AS_BY_UP) as stack,
        httpx.Client(base_url=stack.http_url, timeout=60) as client,
    ):
        for number in range(chosen.rounds):
            text, found = measure(stack, Api(client), text, number)
            rounds.append(found)
    rows = [row_of(name, [each[name] for each in rounds]) for name in rounds[0]]
    aim = "8 s where the job goes on"
    report("change", "s", rows, reference=PROCESS, settings=vars(chosen), aim=aim)


if __name__ == "__main__":
    main()
