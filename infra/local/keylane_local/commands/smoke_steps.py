"""The steps of `keylane smoke`: one key is written, waited for, read, and deleted.

    health      every part that is configured answers
    topic       the topic is served, and its state is complete
    write       PUT returns the record's position
    read        GET waits for that position, and returns what was written
    freshness   the answer's watermark is behind the record, and its age is small
    delete      DELETE returns a position
    absent      GET waits for that position, and the key is gone

A step that fails ends the run. A key that was written is deleted in any case.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from keylane_local.commands.api_client import ApiUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane_local.commands.api_client import ApiAnswer, ApiClient

FRESH_MS = 60_000
"""An idle lane is about a second old. Older than this, nobody applies the log."""
_OK, _CREATED, _ACCEPTED, _NOT_FOUND = 200, 201, 202, 404
_WAIT_S, _REQUEST_S, _PAUSE_S = 10, 30, 0.2
_TROUBLE = "docs/operate/troubleshooting.md"
_JOB_IS_LATE = (
    "the job does not apply the log: does it run, does its keylane.toml have the topic, does it reach Kafka "
    f"and Redis? Its log says so; see {_TROUBLE}"
)
_ADVICE = {
    "unknown-topic": "for reads add it to keylane.toml and restart the job, for writes create it in Kafka",
    "topic-not-served": "the deployment does not serve this topic: see the parameter Topics (KEYLANE_TOPICS)",
    "position-not-reached": _JOB_IS_LATE,
    "state-too-old": _JOB_IS_LATE,
    "lane-building": "the job still reads the topic from its begin: wait, and try again",
    "state-unavailable": "the functions can't use Redis: check subnets, security groups, user, secret, TLS",
    "log-unavailable": "produce can't use Kafka: check bootstrap, subnets, security groups, SASL, secret",
    "settings-unavailable": "a secret can't be fetched: is there a way to Secrets Manager (an endpoint)?",
    "misconfigured": "a variable of the function is wrong: its log group names it",
    "internal": "see the function's log group, by the request's id",
    "rate-limited": "a rate limit is reached: wait, or use another topic",
    "value-invalid": "the topic takes only values of its schema: use a test topic without one",
}
_STATUS_ADVICE = {
    401: "the API wants credentials: --authorization, or --sign",
    403: "the caller is rejected: --api-key, --authorization or --sign (the role needs execute-api:Invoke)",
    404: "no such route: does the URL end in the stage (/v1) or the base path, as the output ApiUrl has it?",
    413: "the request is too large",
    429: "API Gateway throttles this caller: wait, or raise the limits of the stage or the usage plan",
    500: "API Gateway could not run the function or the authorizer: see their log groups",
    502: "the function failed or answered nothing valid: see its log group",
    503: "the service is not ready: try again",
    504: "the function took longer than API Gateway waits: can it reach Kafka and Redis?",
}


@dataclass(frozen=True, slots=True)
class SmokeStep:
    """What a step did. `fault`: what is wrong, "" if nothing is; `advice`: what to do about it."""

    name: str
    did: str
    took_ms: int
    fault: str = ""
    advice: str = ""


class StepFailed(Exception):
    """A step's fault and advice."""

    def __init__(self, fault: str, advice: str) -> None:
        super().__init__(fault)
        self.advice = advice


@dataclass(slots=True)
class Smoke:
    """One run over one key. `report` gets each step when it is done; `timeout_s` bounds each wait."""

    client: ApiClient
    topic: str
    key: str
    timeout_s: float
    report: Callable[[SmokeStep], None]
    _value: bytes = b""
    _position: str = ""
    _answer: ApiAnswer | None = field(default=None, repr=False)

    def run(self) -> bool:
        """Take all steps; return whether all went well."""
        self._value = json.dumps({"smoke": self.key, "at_ms": round(time.time() * 1000)}).encode()
        steps = (self._health, self._topic, self._write, self._read, self._freshness)
        went_well = all(map(self._take, steps))
        if self._position:
            went_well &= self._take(self._delete) and went_well and self._take(self._absent)
        return went_well

    def _take(self, step: Callable[[], str]) -> bool:
        name, began_s = step.__name__.lstrip("_"), time.monotonic()
        fault = advice = did = ""
        try:
            did = step()
        except StepFailed as error:
            fault, advice = str(error), error.advice
        except ApiUnreachable as error:
            fault, advice = (
                str(error),
                "nothing answers: check the URL, and whether this machine may reach it",
            )
        self.report(SmokeStep(name, did, round((time.monotonic() - began_s) * 1000), fault, advice))
        return not fault

    def _health(self) -> str:
        answer = self._send("GET", "/health")
        parts = answer.document.get("parts", {})
        if not isinstance(parts, dict) or not parts:
            raise _unexpected(answer, "/health")
        bad = {name: part.get("why", "not ready") for name, part in parts.items() if not part.get("ready")}
        if bad or answer.status != _OK:
            where = "; ".join(f"{name}: {why}" for name, why in bad.items())
            raise StepFailed(where, "explore reaches the others: compare addresses, subnets and secrets")
        return f"{', '.join(parts)} ready"

    def _topic(self) -> str:
        answer = self._send("GET", f"/topics/{quote(self.topic, safe='')}")
        if answer.status != _OK:
            raise _unexpected(answer, f"topic {self.topic!r}")
        return f"{self.topic} has {answer.document.get('partitions', '?')} partitions"

    def _write(self) -> str:
        answer = self._send("PUT", self._path, self._value, Content_Type="application/json")
        if answer.status == _ACCEPTED:
            raise StepFailed(
                "the write was queued, and has no position yet (202)",
                "writes are asynchronous, or Kafka does not answer: see KEYLANE_ASYNC, produce's log group",
            )
        if answer.status != _CREATED or "position" not in answer.document:
            raise _unexpected(answer, "PUT")
        self._position = str(answer.document["position"])
        return f"{self.key} is at {self._position}"

    def _read(self) -> str:
        answer = self._wait_for(self._position)
        if answer.status != _OK:
            raise _unexpected(answer, f"GET with position {self._position}")
        if answer.body != self._value:
            raise StepFailed(
                f"the value is another one: {answer.detail}", "does another client write this key? use --key"
            )
        self._answer = answer
        return "the value is the one that was written"

    def _freshness(self) -> str:
        headers = self._answer.headers if self._answer else {}
        watermark, age = headers.get("keylane-watermark"), headers.get("keylane-age-ms")
        if watermark is None or age is None:
            raise StepFailed(
                "the answer lacks Keylane-Watermark or Keylane-Age-Ms",
                "does a proxy remove headers on the way?",
            )
        offset = int(self._position.partition(":")[2])
        if int(watermark.partition(":")[2]) <= offset:
            raise StepFailed(f"watermark {watermark} is not behind the record", "report this: it is a bug")
        if int(age) > FRESH_MS:
            raise StepFailed(f"the state may be {int(age) // 1000} s old", _JOB_IS_LATE)
        return f"watermark {watermark}, {age} ms old"

    def _delete(self) -> str:
        answer = self._send("DELETE", self._path)
        if answer.status not in {_OK, _CREATED} or "position" not in answer.document:
            raise _unexpected(answer, "DELETE")
        self._position = str(answer.document["position"])
        return f"the tombstone is at {self._position}"

    def _absent(self) -> str:
        answer = self._wait_for(self._position)
        if answer.status != _NOT_FOUND or answer.problem != "key-absent":
            raise _unexpected(answer, "GET of the deleted key")
        return "the key is gone"

    def _wait_for(self, position: str) -> ApiAnswer:
        """Read the key once the state has the position; repeat a wait that runs out until the timeout."""
        until_s = time.monotonic() + self.timeout_s
        while True:
            left_s = max(0, min(_WAIT_S, round(until_s - time.monotonic())))
            answer = self._send(
                "GET",
                self._path,
                Keylane_Min_Position=position,
                Prefer=f"wait={left_s}",
                Accept="application/octet-stream",
            )
            if answer.problem != "position-not-reached" or time.monotonic() >= until_s:
                return answer
            time.sleep(_PAUSE_S)  # the deployment may allow shorter waits, or none

    def _send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> ApiAnswer:
        return self.client.request(method, path, _REQUEST_S, body, **headers)

    @property
    def _path(self) -> str:
        return f"/topics/{quote(self.topic, safe='')}/keys/{quote(self.key, safe='')}"


def _unexpected(answer: ApiAnswer, what: str) -> StepFailed:
    """The failure that an answer means; API Gateway's own answers have no problem type."""
    who = answer.problem or "not an answer of Keylane's functions"
    advice = _ADVICE.get(answer.problem) or _STATUS_ADVICE.get(answer.status, f"see {_TROUBLE}")
    return StepFailed(f"{what}: {answer.status} ({who}): {answer.detail}", advice)
