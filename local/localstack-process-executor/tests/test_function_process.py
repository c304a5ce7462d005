"""Environments of the LocalStack executor: real processes under AWS's runtime interface client."""

from __future__ import annotations

import json
import sys
import time

import psutil
import pytest
from localstack_process_executor import interpreters
from localstack_process_executor.function_process import FunctionProcess, Invocation, Stopped
from localstack_process_executor.runtime_api import InitError

HANDLER = """
import json, os, subprocess, sys, time
print("loaded")

def lambda_handler(event, context):
    print("asked", event)
    if event == "sleep":
        time.sleep(60)
    if event == "leave":
        os._exit(3)
    if event == "raise":
        raise KeyError("why")
    if event == "much":
        return "x" * (7 * 1024 * 1024)
    if event == "child":
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid
    return {
        "pid": os.getpid(),
        "id": context.aws_request_id,
        "left": context.get_remaining_time_in_millis(),
        "arn": context.invoked_function_arn,
        "trace": os.environ["_X_AMZN_TRACE_ID"],
        "mine": os.environ["MINE"],
    }
"""
WITHIN_S = 20


def eventually(condition):
    """Poll until `condition` holds; fail if it does not within WITHIN_S."""
    end_s = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < end_s, f"the condition did not hold within {WITHIN_S} s"
        time.sleep(0.02)


@pytest.fixture
def environment(tmp_path):
    """Give a maker of environments, each with its handler's source."""
    made = []

    def make(source=HANDLER, handler="main.lambda_handler", init_timeout_s=60):
        (tmp_path / "main.py").write_text(source)
        process = FunctionProcess(
            [sys.executable, "-m", "awslambdaric", handler],
            cwd=tmp_path,
            variables={"MINE": "set", "PYTHONUNBUFFERED": "1", "_HANDLER": handler},
            log=tmp_path / "log",
            init_timeout_s=init_timeout_s,
        )
        made.append(process)
        return process

    yield make
    for process in made:
        process.stop()


@pytest.fixture
def process(environment):
    """An environment of HANDLER that has started."""
    made = environment()
    made.start()
    return made


def invoked(process, event, *, request_id="r1", timeout_s=30.0):
    return process.invoke(Invocation(request_id, "arn:f", "Root=1-2", json.dumps(event).encode(), timeout_s))


def test_a_handler_sees_what_it_sees_on_lambda(process):
    outcome = invoked(process, {"a": 1})
    told = json.loads(outcome.answer.payload)
    assert not outcome.answer.failed
    assert (told["id"], told["arn"], told["trace"], told["mine"]) == ("r1", "arn:f", "Root=1-2", "set")
    assert 0 < told["left"] <= 30_000
    assert outcome.written.splitlines() == ["loaded", "asked {'a': 1}"]
    assert outcome.memory_mb > 5
    assert outcome.init_ms > 1
    again = invoked(process, 2, request_id="r2")
    assert json.loads(again.answer.payload)["pid"] == told["pid"] == process.pid
    assert again.written.splitlines() == ["asked 2"]
    assert again.init_ms is None


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ("sleep", b"Task timed out after 0.50 seconds"),
        ("leave", b"RequestId: r1 Error: Runtime exited with error: exit status 3"),
        ("much", b"Function.ResponseSizeTooLarge"),
    ],
)
def test_a_crash_or_timeout_is_answered_and_the_next_invocation_gets_a_new_environment(process, event, kind):
    first = process.pid
    outcome = invoked(process, event, timeout_s=0.5 if event == "sleep" else 30)
    assert outcome.answer.failed
    assert kind in outcome.answer.payload
    again = invoked(process, "next", request_id="r2")
    assert json.loads(again.answer.payload)["pid"] not in {first, None}


def test_an_error_of_the_handler_leaves_its_environment_warm(process):
    first = process.pid
    outcome = invoked(process, "raise")
    assert outcome.answer.failed
    assert json.loads(outcome.answer.payload)["errorType"] == "KeyError"
    assert "Traceback" in outcome.written
    assert process.pid == first


def test_an_environment_that_died_while_idle_is_replaced(process):
    psutil.Process(process.pid).kill()
    eventually(lambda: process.pid is None)
    assert not invoked(process, 1).answer.failed


def test_a_handler_that_cannot_be_imported_is_named(environment):
    process = environment(handler="absent.lambda_handler")
    with pytest.raises(InitError, match="Unable to import module 'absent'"):
        process.start()


def test_a_handler_that_loads_too_slowly_is_an_init_error(environment):
    process = environment("import time; time.sleep(60)", init_timeout_s=0.5)
    with pytest.raises(InitError, match=r"not loaded after"):
        process.start()
    eventually(lambda: process.pid is None)


def test_a_missing_program_is_an_init_error(environment, tmp_path):
    process = environment()
    process.command = [str(tmp_path / "absent")]
    with pytest.raises(InitError, match=r"Runtime\.InvalidEntrypoint"):
        process.start()


def test_stopping_kills_child_processes_and_releases_waiting_callers(process):
    child = psutil.Process(json.loads(invoked(process, "child").answer.payload))
    process.stop()
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    with pytest.raises(Stopped):
        invoked(process, 1)


def test_a_log_is_bounded_and_its_end_is_kept(environment, monkeypatch):
    monkeypatch.setattr("localstack_process_executor.function_process.MAX_LOG_BYTES", 100)
    process = environment("def lambda_handler(event, context):\n    print('-' * 200 + event)")
    process.start()
    assert invoked(process, "one").written == "-" * 96 + "one\n"
    assert process.log.stat().st_size == 0
    assert invoked(process, "two").written.endswith("two\n")


def test_an_interpreter_is_found_by_its_runtime(monkeypatch):
    ours = f"python{sys.version_info.major}.{sys.version_info.minor}"
    monkeypatch.setenv(interpreters.VARIABLE, f"/absent/python:{sys.executable}")
    assert interpreters.interpreter_for(ours) == sys.executable


def test_a_runtime_without_interpreter_names_the_variable_to_set(monkeypatch):
    monkeypatch.setenv(interpreters.VARIABLE, sys.executable)
    with pytest.raises(interpreters.NoInterpreter, match=r"python2\.7: PROCESS_EXECUTOR_PYTHON names"):
        interpreters.interpreter_for("python2.7")
    with pytest.raises(interpreters.NoInterpreter):
        interpreters.interpreter_for("nodejs22.x")
