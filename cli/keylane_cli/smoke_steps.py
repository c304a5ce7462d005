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

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from keylane_client import (
    Client,
    InvalidAnswer,
    KeylaneError,
    Position,
    PositionNotReached,
    ProblemError,
    Record,
    Topic,
    Unreachable,
)

FRESH_MS = 60_000
"""An idle lane is about a second old. Older than this, nobody applies the log."""
REQUEST_S = 30.0
_WAIT_S, _PAUSE_S = 10, 0.2
_TROUBLE = "`keylane help troubleshooting`"
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

    client: Client
    topic: str
    key: str
    timeout_s: float
    report: Callable[[SmokeStep], None]
    _value: dict[str, Any] = field(default_factory=dict)
    _position: Position | None = None
    _record: Record | None = field(default=None, repr=False)

    def run(self) -> bool:
        """Take all steps; return whether all went well."""
        self._value = {"smoke": self.key, "at_ms": round(time.time() * 1000)}
        steps = {
            "health": self._health,
            "topic": self._layout,
            "write": self._write,
            "read": self._read,
            "freshness": self._freshness,
        }
        went_well = all(self._take(name, step) for name, step in steps.items())
        if self._position:
            is_deleted = self._take("delete", self._delete)
            went_well = is_deleted and went_well and self._take("absent", self._absent)
        return went_well

    def _take(self, name: str, step: Callable[[], str]) -> bool:
        began_s = time.monotonic()
        fault = advice = did = ""
        try:
            did = step()
        except StepFailed as error:
            fault, advice = str(error), error.advice
        except KeylaneError as error:
            fault, advice = _describe(error)
        self.report(SmokeStep(name, did, round((time.monotonic() - began_s) * 1000), fault, advice))
        return not fault

    def _health(self) -> str:
        parts = self.client.health().get("parts", {})
        if not isinstance(parts, dict) or not parts:
            raise StepFailed("/health names no parts", "is the URL that of Keylane?")
        bad = {name: part.get("why", "not ready") for name, part in parts.items() if not part.get("ready")}
        if bad:
            where = "; ".join(f"{name}: {why}" for name, why in bad.items())
            raise StepFailed(where, "explore reaches the others: compare addresses, subnets and secrets")
        return f"{', '.join(parts)} ready"

    def _layout(self) -> str:
        return f"{self.topic} has {self._topic.layout().partitions} partitions"

    def _write(self) -> str:
        written = self._topic.put(self.key, self._value)
        if written.position is None:
            raise StepFailed(
                "the write was queued, and has no position yet (202)",
                "writes are asynchronous, or Kafka does not answer: see KEYLANE_ASYNC, produce's log group",
            )
        self._position = written.position
        return f"{self.key} is at {self._position}"

    def _read(self) -> str:
        record = self._wait_for_position()
        if record is None:
            raise StepFailed(
                f"the key is absent at position {self._position}",
                "does another client delete this key? use --key",
            )
        if not self._is_own(record):
            raise StepFailed(
                f"the value is another one: {record.value!r:.300}",
                "does another client write this key? use --key",
            )
        self._record = record
        return "the value is the one that was written"

    def _is_own(self, record: Record) -> bool:
        # A topic of text or bytes has the same JSON, but does not say that it is JSON.
        try:
            return bool(json.loads(record.raw or b"") == self._value)
        except ValueError:
            return False

    def _freshness(self) -> str:
        watermark, age = (self._record.watermark, self._record.age) if self._record else (None, None)
        if self._position is None or watermark is None or age is None:
            raise StepFailed(
                "the answer lacks Keylane-Watermark or Keylane-Age-Ms",
                "does a proxy remove headers on the way?",
            )
        if watermark.offset <= self._position.offset:
            raise StepFailed(f"watermark {watermark} is not behind the record", "report this: it is a bug")
        age_ms = round(age.total_seconds() * 1000)
        if age_ms > FRESH_MS:
            raise StepFailed(f"the state may be {age_ms // 1000} s old", _JOB_IS_LATE)
        return f"watermark {watermark}, {age_ms} ms old"

    def _delete(self) -> str:
        written = self._topic.delete(self.key)
        if written.position is None:
            raise StepFailed(
                "the tombstone was queued, and has no position yet (202)",
                "Kafka does not answer: see produce's log group",
            )
        self._position = written.position
        return f"the tombstone is at {self._position}"

    def _absent(self) -> str:
        if self._wait_for_position() is not None:
            raise StepFailed(
                "the deleted key is still there", "does another client write this key? use --key"
            )
        return "the key is gone"

    def _wait_for_position(self) -> Record | None:
        """Read the key once the state has the position; repeat a wait that runs out until the timeout."""
        until_s = time.monotonic() + self.timeout_s
        while True:
            left_s = max(0, min(_WAIT_S, round(until_s - time.monotonic())))
            try:
                return self._topic.get(self.key, min_position=self._position, wait_s=left_s)
            except PositionNotReached:
                if time.monotonic() >= until_s:
                    raise
            time.sleep(_PAUSE_S)  # the deployment may allow shorter waits, or none

    @property
    def _topic(self) -> Topic:
        return self.client.topic(self.topic)


def _describe(error: KeylaneError) -> tuple[str, str]:
    """The fault and the advice of an error; API Gateway's own answers have no problem type."""
    text = " ".join(str(error).split())
    if isinstance(error, Unreachable):
        return text, "nothing answers: check the URL, and whether this machine may reach it"
    if isinstance(error, InvalidAnswer):
        return text, "does the URL end in the stage (/v1) or the base path, as the output ApiUrl has it?"
    if not isinstance(error, ProblemError):
        return text, f"see {_TROUBLE}"
    said = error.detail or error.title or "no reason was given"
    fault = f"{error.status} ({error.type or 'not an answer of the functions'}): {' '.join(said.split())}"
    return fault, _ADVICE.get(error.type) or _STATUS_ADVICE.get(error.status, f"see {_TROUBLE}")
