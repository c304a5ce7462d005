"""REST Proxy's documented requests and real clients of it, against a running Keylane: `make compat`.

Each client is installed into an environment of its own, which is removed afterwards. Without `--url` the
whole local stack is started for them. Cases in Avro need the tests' registry: tests/compat/test_stack.py.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import venv
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from tests.compat.cases import check_answer, fill, load_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
PARTITION = 1
TIMEOUT_S = 300
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
    parser.add_argument("--url", help="of a running Keylane; without it a stack is started")
    parser.add_argument("--topic", default="flights", help="a topic of at least two partitions")
    options = parser.parse_args()
    with running(options.url) as url:
        faults = run_cases(url, options.topic)
        faults += sum(not run_client(client, url, options.topic) for client in CLIENTS)
    print(f"{faults} faults")
    return 1 if faults else 0


@contextmanager
def running(url: str | None) -> Iterator[str]:
    """The URL, of the tests' stack if none is given."""
    if url:
        yield url.rstrip("/")
        return
    from tests.servers.own import guarded, wait_writable  # noqa: PLC0415 (a given URL needs no stack)

    from keylane_local.stack.stack import Stack  # noqa: PLC0415

    with (
        tempfile.TemporaryDirectory() as data,
        guarded(Path(data)) as home,
        Stack(home, HERE.parent / "keylane-test.toml") as stack,
    ):
        wait_writable(stack.kafka)
        yield stack.http_url.rstrip("/")


def ask(
    url: str, method: str, path: str, body: bytes | None = None, headers: Any = None
) -> tuple[int, str, bytes]:
    """Send one request; return status, content type and body."""
    parts = urlsplit(url)
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = make(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request(method, parts.path + path, body, dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()
    finally:
        connection.close()


def run_cases(url: str, topic: str) -> int:
    """Run the cases that need no registry; return how many failed."""
    clusters = json.loads(ask(url, "GET", "/v3/clusters")[2])["data"]
    names = {"topic": topic, "cluster": clusters[0]["cluster_id"]}
    cases = {name: case for name, case in load_cases("rest_proxy").items() if "{avro_topic}" not in case.path}
    faults = 0
    for name, case in cases.items():
        body = case.request_body(names) if case.method == "POST" else None
        try:
            check_answer(case, names, *ask(url, case.method, fill(case.path, names), body, case.headers))
        except AssertionError as error:
            faults += 1
            print(f"FAULT {name}: {error}")
    print(f"{len(cases) - faults} of {len(cases)} documented requests are answered as documented")
    return faults


def run_client(client: CompatClient, url: str, topic: str) -> bool:
    """Install a client, run its script and compare what Kafka has with what it says; return the success."""
    before = count_records(url, topic)
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
