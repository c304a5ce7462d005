"""The functions of a checkout as Lambda runs them behind API Gateway: a process for each function."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import TYPE_CHECKING, Any

from tests.contract.hosts import gateway
from tests.contract.hosts.case import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.contract.hosts.case import Case
    from tests.contract.hosts.checkouts import Checkout

DENIED = "User is not authorized to access this resource with an explicit deny"


class FunctionProcess:
    """One environment of a function."""

    def __init__(self, checkout: Checkout, function: str, variables: dict[str, str], log: Path) -> None:
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                checkout.function_command(function),
                env=checkout.function_environment(function, variables),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                encoding="ascii",
            )
        self._log = log

    def invoke(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """{"answer": ...}, or {"raised": [type, text]}."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(event), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"the function ended: {self._log.read_text(encoding='utf-8')[-2000:]}"
        answered: dict[str, Any] = json.loads(line)
        return answered

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


class LambdaHost:
    """The functions with these settings, started when they are needed."""

    def __init__(
        self,
        checkout: Checkout,
        variables: dict[str, str],
        log: Path,
        *,
        requires_tokens: bool,
        as_text: bool,
    ) -> None:
        self._checkout = checkout
        self._variables = variables
        self._log = log
        self._requires_tokens = requires_tokens
        self._as_text = as_text
        self._base_path = variables.get("KEYLANE_BASE_PATH", "")
        self._processes: dict[str, FunctionProcess] = {}
        self._count = 0
        self._beside: LambdaHost | None = None

    @property
    def beside(self) -> LambdaHost:
        """More environments of the functions, for a request at the same time."""
        if self._beside is None:
            self._beside = LambdaHost(
                self._checkout,
                self._variables,
                self._log,
                requires_tokens=self._requires_tokens,
                as_text=self._as_text,
            )
        return self._beside

    def send(self, case: Case) -> Answer:
        self._count += 1
        request_id = f"11111111-2222-4333-a444-{self._count:012d}"
        if case.event:
            function, event = case.event
            return self._respond(function, event, request_id, str(event.get("httpMethod")))
        event = gateway.proxy_event(case, request_id, as_text=self._as_text)
        if self._requires_tokens:
            allowed = self._authorize(event, request_id)
            if isinstance(allowed, Answer):
                return allowed._replace(body=b"") if case.method == "HEAD" else allowed
            event = gateway.proxy_event(case, request_id, allowed)
        path = event["path"].removeprefix(self._base_path) if self._base_path else event["path"]
        return self._respond(gateway.function_of(case.method, path), event, request_id, case.method)

    def invoke(self, function: str, event: Mapping[str, Any]) -> dict[str, Any]:
        """Call a function as something else than API Gateway does."""
        process = self._processes.get(function)
        if process is None:
            process = FunctionProcess(self._checkout, function, self._variables, self._log)
            self._processes[function] = process
        return process.invoke(event)

    def stop(self) -> None:
        for process in self._processes.values():
            process.stop()
        if self._beside is not None:
            self._beside.stop()

    def _respond(self, function: str, event: Mapping[str, Any], request_id: str, method: str) -> Answer:
        answered = self.invoke(function, event)
        if "raised" in answered:
            return Answer(502, (), json.dumps(answered).encode())
        found = gateway.response_of(answered["answer"], method)
        # API Gateway adds it, whatever the function answers.
        return found._replace(headers=(*found.headers, ("x-amzn-RequestId", request_id)))

    def _authorize(self, event: Mapping[str, Any], request_id: str) -> dict[str, str] | Answer:
        """What the function gets of the caller, or API Gateway's answer to one that is not allowed."""
        answered = self.invoke("authorizer", gateway.authorizer_event(event))
        origin = self._variables.get("KEYLANE_CORS_ORIGIN", "")
        if "raised" in answered:
            if answered["raised"] != ["Unauthorized", "Unauthorized"]:
                return Answer(500, (), json.dumps(answered).encode())
            return gateway.refusal("UNAUTHORIZED", "Unauthorized", request_id, origin)
        policy = answered["answer"]
        [statement] = policy["policyDocument"]["Statement"]
        assert statement["Action"] == "execute-api:Invoke"
        if statement["Effect"] != "Allow":
            return gateway.refusal("ACCESS_DENIED", DENIED, request_id, origin)
        return gateway.authorizer_context(policy)


@contextlib.contextmanager
def lambda_host(
    checkout: Checkout,
    variables: dict[str, str],
    log: Path,
    *,
    requires_tokens: bool = False,
    as_text: bool = False,
) -> Iterator[LambdaHost]:
    """Yield the functions; stop them afterwards."""
    host = LambdaHost(checkout, variables, log, requires_tokens=requires_tokens, as_text=as_text)
    try:
        yield host
    finally:
        host.stop()
