"""The process executor in a LocalStack: with the patches that were chosen, and without any."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import zipfile

import pytest
from localstack_process_executor.patches import PATCHES
from tests.servers.own import guarded

from keylane_local.process.ports import Ports
from keylane_local.servers.localstack import LocalStack

RUNTIME = f"python{sys.version_info.major}.{sys.version_info.minor}"
SOURCE = "def handle(event, context):\n    return {'twice': 2 * event['number']}\n"


@contextlib.contextmanager
def own_localstack(folder):
    """A LocalStack of the test's own."""
    with guarded(folder) as data:
        running = LocalStack(data / "home", run=data / "run", log=data / "localstack.log", port=Ports().any())
        running.start()
        running.wait_ready()
        yield running
        running.kill()  # it keeps nothing, and takes up to 8 s to stop


def test_the_local_stack_applies_every_patch_and_logs_it(localstack):
    log = localstack.log.read_text(encoding="utf-8")
    for name in PATCHES:
        assert f"patch applied: {name}: " in log


@pytest.mark.long
def test_functions_run_in_a_localstack_that_is_not_patched(tmp_path, monkeypatch):
    monkeypatch.setenv("PROCESS_EXECUTOR_PATCHES", "")
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("app.py", SOURCE)
    with own_localstack(tmp_path) as plain, contextlib.closing(plain.client("lambda")) as client:
        client.create_function(
            FunctionName="twice",
            Runtime=RUNTIME,
            Handler="app.handle",
            Role="arn:aws:iam::000000000000:role/any",
            Code={"ZipFile": code.getvalue()},
        )
        client.get_waiter("function_active_v2").wait(
            FunctionName="twice", WaiterConfig={"Delay": 1, "MaxAttempts": 60}
        )
        answer = client.invoke(FunctionName="twice", Payload=b'{"number": 21}')
        assert json.load(answer["Payload"]) == {"twice": 42}
    assert "patch applied" not in plain.log.read_text(encoding="utf-8")
