"""A function that is frozen as soon as it has answered, and never thawed: what it acknowledged is written.

SIGSTOP does to a process what Lambda does to an environment between two requests; an environment that is not
needed any more is then ended without another instruction.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.servers.own import records_of, suspend
from tests.support.builders import FUNCTIONS, an_event

from keylane_local.process.lambda_process import Function, LambdaProcess
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from pathlib import Path

    from localstack_process_executor.runtime_api import Answer
    from tests.servers.aws import Aws

LAYER = project_root() / "layers" / "keylane" / "python"


def answer_before_the_freeze(code: Path, log: Path, variables: dict[str, str], topic: str) -> Answer:
    """Invoke a function, stop its process at once, and end it without its ever going on."""
    body = json.dumps({"records": [{"topic": topic, "key": "k", "data": "v"}]}).encode()
    event = json.dumps(an_event("POST", "/push", body=body)).encode()

    with LambdaProcess(Function("frozen", code, LAYER, log, variables=variables)) as process:
        answer = process.call(event, "request-1")
        assert process.pid is not None
        suspend(process.pid)
    assert not answer.failed, answer.payload
    assert json.loads(json.loads(answer.payload)["body"])["status"] == "ok"
    return answer


def test_what_is_delivered_before_the_answer_is_there(topic: str, kafka: str, tmp_path: Path):
    variables = {"KEYLANE_KAFKA_BOOTSTRAP": kafka, "KEYLANE_ASYNC": "deliver"}
    answer_before_the_freeze(FUNCTIONS / "produce", tmp_path / "log", variables, topic)
    assert records_of(kafka, topic, 0) == [(b"k", b"v")]


def test_what_is_queued_before_the_answer_is_there(topic: str, kafka: str, tmp_path: Path, moto: Aws):
    url = moto.queue()
    variables = {"KEYLANE_KAFKA_BOOTSTRAP": kafka, "KEYLANE_QUEUE_URL": url, **moto.environment}
    answer = answer_before_the_freeze(FUNCTIONS / "produce", tmp_path / "log", variables, topic)
    assert json.loads(json.loads(answer.payload)["body"])["positions"] == [None]
    assert moto.count(url) == 1
