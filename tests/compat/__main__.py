"""The documented requests of REST Proxy and kprf, and real clients, against a running Keylane: `make compat`.

Each client is installed into an environment of its own, which is removed afterwards. Without `--url` the
whole local stack is started for them, with a registry. `--localstack` deploys the template to LocalStack
beside it, and sends all to that API; `--lambda` to the Lambda functions instead of the server. A case that
needs what a given URL may not have is not sent there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import venv
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from tests.compat.cases import CompatCase, check_answer, fill, load_cases, names_of
from tests.compat.targets import LIMITED, SCHEMA_TOPICS, Target, ask, given, started, write_record

HERE = Path(__file__).parent
PARTITION = 1
TIMEOUT_S = 300
SETTLED, SETTLED_WITHIN_S = 10, 60
"""A count has settled when it was the same so many times in a row."""
JSON = {"Content-Type": "application/json"}
V2 = {"Accept": "application/vnd.kafka.v2+json"}


class CompatClient(NamedTuple):
    """A client in a registry, and the script in clients/ that uses it as its README shows."""

    packages: tuple[str, ...]
    script: str

    @property
    def is_npm(self) -> bool:
        return self.script.endswith(".js")


CLIENTS = (
    CompatClient(("nlp-kafka-rest-api==1.0.0",), "produce_with_nlp.py"),
    # It imports python-slugify, and does not say so.
    CompatClient(("pymapr-kafkarest==0.1.1", "python-slugify==8.0.4"), "produce_with_pymapr.py"),
    CompatClient(("kafka-rest@0.0.5",), "read_with_kafka_rest.js"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", help="of a running Keylane; without it a stack is started")
    where.add_argument("--localstack", action="store_true", help="deploy the template to LocalStack")
    where.add_argument(
        "--lambda", action="store_true", dest="by_lambda", help="send them to the Lambda functions"
    )
    parser.add_argument("--topic", default="flights", help="a topic of at least two partitions")
    options = parser.parse_args()
    running = (
        nullcontext(given(options.url))
        if options.url
        else started(on_localstack=options.localstack, by_lambda=options.by_lambda)
    )
    with running as target:
        faults = run_cases(target, options.topic)
        faults += sum(not run_client(client, target.url, options.topic) for client in CLIENTS)
    print(f"{faults} faults")
    return 1 if faults else 0


def run_cases(target: Target, topic: str) -> int:
    """Run the cases that the target can answer; return how many failed."""
    clusters = json.loads(ask(target.url, "GET", "/v3/clusters")[2])["data"]
    known = {
        "topic": topic,
        **SCHEMA_TOPICS,
        "cluster": clusters[0]["cluster_id"],
        "limited": LIMITED,
        "unknown": "no-such-topic",
        "large": "x" * 1_048_577,
        **write_record(target.url, topic),
    }
    every = {**load_cases("rest_proxy"), **load_cases("kprf"), **load_cases("http")}
    cases = {name: case for name, case in every.items() if can_answer(target, case)}
    faults = 0
    for name, case in cases.items():
        try:
            run_case(target, case, known)
        except AssertionError as error:
            faults += 1
            print(f"FAULT {name}: {error}")
    print(f"{len(cases) - faults} of {len(cases)} documented requests are answered as documented")
    if len(cases) < len(every):
        print(f"{len(every) - len(cases)} were not sent: they need a registry, a rate limit or another mode")
    return faults


def can_answer(target: Target, case: CompatCase) -> bool:
    has_schemas = target.registrar is not None or not case.needs_registry
    return has_schemas and (target.is_prepared or not case.names("limited")) and case.mode in target.urls


def run_case(target: Target, case: CompatCase, known: dict[str, str]) -> None:
    """Send a case; raise AssertionError if the answer is another one."""
    names = names_of(case, known, target.registrar.register) if target.registrar else known
    body = case.request_body(names) if case.method in {"POST", "PUT"} else None
    headers = fill(case.headers, names) or JSON
    answer = ask(target.urls[case.mode], case.method, fill(case.path, names), body, headers)
    if not target.is_localstack or not case.behind_gateway:
        check_answer(case, names, *answer)
        return
    check_answer(case.as_behind_gateway(), names, *answer)
    try:
        check_answer(case, names, *answer)
    except AssertionError:
        return
    raise AssertionError("LocalStack answers as documented: the case's behind_gateway is out of date")


def run_client(client: CompatClient, url: str, topic: str) -> bool:
    """Install a client, run its script and compare what Kafka has with what it says; return the success."""
    before = count_settled(url, topic)
    with tempfile.TemporaryDirectory() as home:
        command = [*install(client, Path(home)), url, topic, str(PARTITION)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=home
        )
    if done.returncode:
        print(f"FAULT {client.packages[0]}: {(done.stdout + done.stderr).strip()[-2000:]}")
        return False
    found = json.loads(done.stdout.splitlines()[-1])
    written = count_records(url, topic) - before
    is_right = written == found.pop("produced") and all(found.values())
    what = f"{written} records written" if written else f"read {', '.join(found)}"
    print(f"{'' if is_right else 'FAULT '}{client.packages[0]}: {what}")
    return is_right


def count_settled(url: str, topic: str) -> int:
    """Count the topic's records once none arrives any more: those of cases that are queued come later."""
    counts = [count_records(url, topic)]
    end_s = time.monotonic() + SETTLED_WITHIN_S
    while len(counts) < SETTLED or len(set(counts[-SETTLED:])) > 1:
        if time.monotonic() > end_s:
            raise SystemExit(
                f"records still arrive in {topic} after {SETTLED_WITHIN_S} s: {counts[-SETTLED:]}"
            )
        time.sleep(0.3)
        counts.append(count_records(url, topic))
    return counts[-1]


def count_records(url: str, topic: str) -> int:
    """Return the sum of a topic's end offsets, as REST Proxy's clients see them."""
    path = f"/topics/{topic}/partitions"
    partitions = json.loads(ask(url, "GET", path, headers=V2)[2])
    ends = (ask(url, "GET", f"{path}/{each['partition']}/offsets", headers=V2)[2] for each in partitions)
    return sum(json.loads(each)["end_offset"] for each in ends)


def install(client: CompatClient, home: Path) -> list[str]:
    """Install a client's packages into `home`; return the command that runs its script."""
    script = HERE / "clients" / client.script
    if client.is_npm:
        quiet = ("--silent", "--no-audit", "--no-fund", "--prefix", str(home))
        run("npm", "install", *quiet, *client.packages)
        return ["node", str(_copied(script, home))]
    venv.create(home / "venv", with_pip=True)
    python = str(home / "venv" / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *client.packages)
    return [python, str(_copied(script, home))]


def run(*command: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, check=True, timeout=TIMEOUT_S)


def _copied(script: Path, home: Path) -> Path:
    """Node looks for packages beside the script."""
    copy = home / script.name
    copy.write_bytes(script.read_bytes())
    return copy


if __name__ == "__main__":
    sys.exit(main())
