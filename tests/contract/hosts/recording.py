"""Sends the requests of a world to one host of a checkout, and keeps what it answers and what it writes."""

from __future__ import annotations

import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from tests.contract.hosts import gateway
from tests.contract.hosts.case import LAMBDA, Answer
from tests.contract.hosts.lambda_host import lambda_host
from tests.contract.hosts.normalise import Run, Span, normalised, normalised_line
from tests.contract.hosts.server_host import server_host
from tests.servers.aws import event_of, receive

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.contract.hosts.case import Case, Names
    from tests.contract.hosts.checkouts import Checkout
    from tests.contract.hosts.lambda_host import LambdaHost
    from tests.contract.hosts.server_host import ServerHost
    from tests.contract.hosts.servers import Servers
    from tests.contract.hosts.worlds import World

SLOW_S = 2.0
LEAD_S = 0.5
"""How long before a request the one begins that it overlaps."""


class Recorded(NamedTuple):
    """The answer to a request of a world, without what is of the one recording. `operation`: its route."""

    operation: str
    answer: Answer


Recording = dict[str, Recorded]
"""By the requests' titles."""


class Recorder:
    """Records worlds on the same servers. `begin_ms`: when their data began to be written."""

    def __init__(self, servers: Servers, begin_ms: int, log: Path) -> None:
        self._servers = servers
        self._begin_ms = begin_ms
        self._log = log
        self.slow: list[tuple[float, str]] = []
        """Requests that took long: seconds, world and title."""

    def record(self, world: World, checkout: Checkout, host: str) -> Recording:
        """Send the requests of the world to the host, and look at what Kafka has of them."""
        servers, names = self._servers, self._servers.names()
        servers.create(names)
        variables = world.variables(servers, names)
        cases = [case for case in world.requests(names) if host in case.hosts]
        with contextlib.ExitStack() as stack:
            tokens = world.requires_tokens
            running: LambdaHost | ServerHost
            if host == LAMBDA:
                running = stack.enter_context(
                    lambda_host(checkout, variables, self._log, requires_tokens=tokens, as_text=world.as_text)
                )
            else:
                running = stack.enter_context(
                    server_host(checkout, variables, self._log, requires_tokens=tokens)
                )
            answers = self._send(world, running, cases)
            drained = self._drain(checkout, variables) if world.drains else {}
        span = Span(self._begin_ms, time.time_ns() // 1_000_000)
        run = Run.of(names.tag, span, answers, hangs=world.hangs)
        found = {
            case.title: Recorded(_operation(case, variables), normalised(answer, case, run))
            for case, answer in zip(cases, answers, strict=True)
        }
        for title, lines in {**drained, **self._written(names)}.items():
            shown = b"\n".join(sorted(normalised_line(line, run) for line in lines))
            found[title] = Recorded("afterwards", Answer(0, (), shown))
        servers.delete(names)
        return found

    def _send(self, world: World, host: LambdaHost | ServerHost, cases: Iterable[Case]) -> list[Answer]:
        answers: list[Answer] = []
        by_title: dict[str, Answer] = {}
        for case in cases:
            begun_s = time.monotonic()
            answer = _sent(host, _with_cursor(case, by_title) if case.cursor_of else case)
            taken_s = time.monotonic() - begun_s
            if taken_s > SLOW_S:
                self.slow.append((taken_s, f"{world.name}: {case.title}"))
            answers.append(answer)
            by_title[case.title] = answer
        return answers

    def _drain(self, checkout: Checkout, variables: Mapping[str, str]) -> dict[str, list[str]]:
        """Pass what is in the queue to the drain function; its answers, and the reasons of dead letters."""
        servers, lines = self._servers, []
        url = variables["KEYLANE_QUEUE_URL"]
        with lambda_host(checkout, dict(variables), self._log) as host, servers.aws.client("sqs") as sqs:
            while messages := receive(sqs, url):
                answered = host.invoke("drain", event_of(messages, url))
                failed = answered.get("answer", {}).get("batchItemFailures")
                lines.append(json.dumps({"failed": failed and len(failed), "raised": answered.get("raised")}))
                for message in messages:
                    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        dead = servers.aws.messages(variables["KEYLANE_DLQ_URL"])
        reasons = [json.dumps(each.get("MessageAttributes", {}), sort_keys=True) for each in dead]
        return {"the drain function": sorted(set(lines)), "dead letters": reasons}

    def _written(self, names: Names) -> dict[str, list[str]]:
        """The records of each topic of the run: in which order they are there is in the answers."""
        found = self._servers.written(names)
        return {f"records of {kind}": [_shown(each) for each in messages] for kind, messages in found.items()}


def _sent(host: LambdaHost | ServerHost, case: Case) -> Answer:
    if not case.overlaps:
        return host.send(case)
    host.beside.send(replace(case, headers=()))  # it has started then
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(host.beside.send, case)
        time.sleep(LEAD_S)
        answer = host.send(case)
        first.result()
    return answer


def _with_cursor(case: Case, answers: Mapping[str, Answer]) -> Case:
    """The request of the page after one that was answered; the same page where there is none."""
    try:
        cursor = str(json.loads(answers[case.cursor_of].body).get("next", ""))
    except ValueError:
        cursor = ""
    mark = "&" if "?" in case.target else "?"
    return replace(case, target=f"{case.target}{mark}cursor={quote(cursor)}") if cursor else case


def _operation(case: Case, variables: Mapping[str, str]) -> str:
    path = case.path.removeprefix(variables.get("KEYLANE_BASE_PATH", "") or "\0")
    return gateway.operation_of(case.method, path) or "no route"


def _shown(message: Any) -> str:
    kind, at_ms = message.timestamp()
    headers = [[name, value and value.decode("latin-1")] for name, value in message.headers() or ()]
    row = [message.key(), message.value()]
    shown = [None if each is None else each[:2_000].decode("latin-1") for each in row]
    return json.dumps([*shown, headers, kind, at_ms])
