"""Requests of every route, changed at random, for the standing server and the functions on a whole stack.

One after the other, to a server that anyone may ask, one with tokens, and the Lambda functions. Of each:

1. an answer within 5 s, and no 5xx but 501 and the documented 503,
2. no trace in an answer or a log, no process that ends, no more than 400 MiB of a server,
3. no value of a topic for a caller who may not read it,
4. valid writes and reads are answered right in between.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import re
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.compat.targets import WARM_UP, Registrar
from tests.e2e.client import Client
from tests.requests.judge import LONGEST_S, FuzzTarget, ValidRounds, fault_of
from tests.requests.mutations import Harvest, Mutator
from tests.requests.valid import SECRET_TOPIC, ValidRequests, parameters, write_records, written_requests
from tests.requests.wire import HTTP_1, LATE, RAW, FuzzAnswer, FuzzRequest
from tests.servers.lambda_api import lambda_api
from tests.servers.own import eventually, guarded, wait_writable
from tests.servers.schema_registry import Registry
from tests.servers.standing import standing

from keylane_local.process.ports import Ports
from keylane_local.stack.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Say = Callable[[str], None]

ALL, SOME = "token-of-all-topics", "token-of-some-topics"
GRANTS = {
    ALL: {"name": "all", "read": ["*"], "write": ["*"], "views": ["*"]},
    SOME: {"name": "some", "read": ["anything", "flights", "bookings"], "write": ["anything", "flights"]},
}
ACCESS = json.dumps({hashlib.sha256(token.encode()).hexdigest(): grant for token, grant in GRANTS.items()})
CALLER = f"Bearer {ALL}"
VARIABLES = {
    "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS": "3000",
    "KEYLANE_WAIT_MAX_MS": "500",
    "KEYLANE_WAIT_DEFAULT_MS": "200",
}
OPEN, TOKENS, FUNCTIONS = "open", "tokens", "functions"
TESTS = Path(__file__).parents[1]
ROUND_EVERY, PROCESSES_EVERY, SAY_EVERY = 400, 50, 2_000
TO_FUNCTIONS = 0.1
AGAIN = 2
MOST_FAULTS = 40
UNAVAILABLE = re.compile(rb"urn:keylane:problem:([a-z-]+)")


@dataclass
class Sent:
    """A find: what was sent to what before, the last of it first to blame."""

    target: str
    fault: str
    requests: list[FuzzRequest]


@dataclass
class RequestFuzz:
    """One run. `faults`: what was found; a kind of it once."""

    chance: random.Random
    targets: list[FuzzTarget]
    mutator: Mutator
    harvest: Harvest
    say: Say
    faults: list[Sent] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    slow: int = 0
    sent: int = 0
    _kinds: set[str] = field(default_factory=set)
    _last: deque[FuzzRequest] = field(default_factory=lambda: deque(maxlen=20))

    def run(self, seconds: float) -> None:
        """Send requests for so long."""
        until_s = time.monotonic() + seconds
        rounds = [ValidRounds(target, CALLER) for target in self.targets if target.name != FUNCTIONS]
        while time.monotonic() < until_s and len(self.faults) < MOST_FAULTS:
            if self.sent % ROUND_EVERY == 0:
                for target, each in zip(self.targets, rounds, strict=False):
                    for fault in each.run():
                        self._note(target, fault)
            request = self.mutator.next()
            self.send(self._choose(request), request)
            self.sent += 1
            if self.sent % PROCESSES_EVERY == 0:
                for target in self.targets:
                    for fault in target.faults():
                        self._note(target, fault)
            if self.sent % SAY_EVERY == 0:
                self.say(self.summary())

    def summary(self) -> str:
        memory = ", ".join(f"{each.name} {each.most_mib:.0f} MiB" for each in self.targets if each.most_mib)
        return (
            f"{self.sent:,} requests, {dict(sorted(self.statuses.items()))}, {memory}, {self.slow} slow once"
        )

    def _choose(self, request: FuzzRequest) -> FuzzTarget:
        *servers, functions = self.targets
        is_plain = request.over == HTTP_1 and request.method and request.path[:1] == "/" and not request.parts
        names = {name.lower() for name, _ in request.headers}
        odd = {"expect", "upgrade", "connection", "content-length", "transfer-encoding"}
        if is_plain and not names & odd and self.chance.random() < TO_FUNCTIONS:
            return functions
        return self.chance.choice(servers)

    def send(self, target: FuzzTarget, request: FuzzRequest) -> None:
        """Send a request, and judge all that it has caused."""
        self._last.append(request)
        answer = target.send(request)
        refusal = UNAVAILABLE.search(answer.body) if answer.status == HTTPStatus.SERVICE_UNAVAILABLE else None
        self.statuses[refusal[1].decode() if refusal else str(answer.status or answer.ended)] += 1
        fault = self._fault_of(target, request, answer)
        if fault == LATE and answer.status:
            # The machine may be busy: it is late if it is always.
            self.slow += 1
            for _ in range(AGAIN):
                again = target.send(request)
                if not again.status or again.taken_s <= LONGEST_S:
                    fault = None
                    break
        if fault:
            self._note(target, f"{fault}: {answer.body[:600]!r}", fault)
        for each in target.new_log():
            self._note(target, each, each[-300:])
        if answer.status in {200, 201, 207}:
            self.harvest.note(request, answer.headers, answer.body, self.chance)

    def _fault_of(self, target: FuzzTarget, request: FuzzRequest, answer: FuzzAnswer) -> str | None:
        has_right = (
            not target.is_guarded or any(ALL in value for _, value in request.headers) or request.over == RAW
        )
        return fault_of(answer, request, may_have_secret=has_right)

    def _note(self, target: FuzzTarget, fault: str, kind: str = "") -> None:
        request = self._last[-1] if self._last else FuzzRequest("", "")
        name = f"{kind or fault[:80]} {request.method} {'/'.join(request.path.split('/')[:3])[:40]}"
        if name in self._kinds:
            return
        self._kinds.add(name)
        self.faults.append(Sent(target.name, fault, list(self._last)))
        self.say(f"FOUND at {target.name}: {fault[:3_000]}\n  by {request.to_json()[:3_000]}")


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple[list[FuzzTarget], str, Registrar]]:
    """Yield the targets on a stack, the cluster's id and the registry."""
    with contextlib.ExitStack() as running:
        data = running.enter_context(guarded(folder))
        registry = Registry(data, Ports().any())
        registry.start()
        running.callback(registry.close)
        registrar = Registrar(registry.client)
        for kind, schema in WARM_UP.items():
            registrar.register(f"warm-up-{kind}", schema, kind)
        variables = VARIABLES | {"KEYLANE_SCHEMA_REGISTRY_URL": registry.url}
        config = TESTS / "keylane-test.toml"
        stack = running.enter_context(Stack(data, config, variables=variables))
        wait_writable(stack.kafka)
        client = Client(stack.http_url)
        write_records(client)
        eventually(lambda: client.get(SECRET_TOPIC, b"1").status == 200)
        eventually(lambda: client.request("GET", "/views/puts/keys/N14228").status == 200)
        cluster = client.request("GET", "/v3/clusters").json["data"][0]["cluster_id"]
        client.close()
        logs = data / "logs"
        given = stack.environment()
        options: dict[str, Any] = {OPEN: (), TOKENS: ("--authorization", "tokens", "--access-log")}
        targets = []
        for name, more in options.items():
            log = logs / f"{name}.log"
            server = running.enter_context(standing(log, given | {"KEYLANE_ACCESS": ACCESS}, *more))
            targets.append(
                FuzzTarget(name, server.port, [log], server.process.pid, is_guarded=name == TOKENS)
            )
        url = running.enter_context(lambda_api(logs, given))
        of_functions = [logs / f"{name}.log" for name in ("query", "produce", "explore")]
        targets.append(FuzzTarget(FUNCTIONS, urlsplit(url).port or 0, of_functions, None))
        yield targets, cluster, registrar


def fuzz(folder: Path, seed: int, minutes: float, say: Say) -> list[Sent]:
    """Run for so long; return what was found."""
    with running(folder) as (targets, cluster, registrar):
        chance = random.Random(seed)
        written = written_requests(cluster, registrar)
        valid, harvest = ValidRequests(chance, cluster, written), Harvest()
        tokens = (CALLER, f"Bearer {SOME}")
        mutator = Mutator(chance, valid.next, parameters(), tokens, harvest)
        run = RequestFuzz(chance, targets, mutator, harvest, say)
        say(f"seed {seed}: {len(written)} requests are written down")
        for request in written:  # as they are, for cursors and tags
            sent = request.without_header("host").with_header("Host", "localhost")
            run.send(targets[0], sent)
        run.run(minutes * 60)
        say(run.summary())
        return run.faults


def replay(folder: Path, lines: list[str], say: Say) -> list[Sent]:
    """Send requests of a find to all targets; return what was found."""
    with running(folder) as (targets, cluster, registrar):
        written_requests(cluster, registrar)
        chance, harvest = random.Random(0), Harvest()
        run = RequestFuzz(
            chance,
            targets,
            Mutator(chance, lambda: FuzzRequest("GET", "/"), ["a"], [CALLER], harvest),
            harvest,
            say,
        )
        for target in targets:
            for line in lines:
                run.send(target, FuzzRequest.of_json(line))
        say(run.summary())
        return run.faults
