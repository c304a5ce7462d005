"""`keylane invoke` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from tests.support.cloudformation import ROOT

from keylane_client.cli.commands import keylane as main
from keylane_local.errors import BadInput

EVENT = ROOT / "events" / "query" / "get_key.json"


def keylane(tmp_path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "keylane_client.cli", "invoke", "--data-dir", str(tmp_path / "data")]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


def test_the_response_goes_to_standard_output_and_log_and_times_to_standard_error(tmp_path, monkeypatch):
    monkeypatch.setenv("KEYLANE_REDIS_NODES", "127.0.0.1:1")
    done = keylane(tmp_path, "query", "--event", str(EVENT))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["statusCode"] == 503
    assert json.loads(answer["body"])["type"] == "urn:keylane:problem:state-unavailable"
    assert "init " in done.stderr


def test_a_failing_function_sets_the_exit_code(tmp_path):
    event = tmp_path / "event.json"
    event.write_text("[]")
    layer = tmp_path / "layer"
    (layer / "keylane").mkdir(parents=True)
    (layer / "keylane" / "__init__.py").write_text("raise ImportError('no such thing')")
    done = keylane(tmp_path, "query", "--event", str(event), "--layer", str(layer))
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["errorType"] == "Runtime.ImportModuleError"
    assert "no such thing" in answer["errorMessage"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nothing", "--event", str(EVENT)], "no function 'nothing'"),
        (["query", "--event", "nowhere.json"], "the event cannot be read"),
        (["query", "--event", str(ROOT / "Makefile")], "is not valid JSON"),
        (["query", "--event", str(EVENT), "--layer", "nowhere"], "is not a layer"),
    ],
)
def test_a_wrong_command_is_reported_in_one_sentence(tmp_path, arguments, told):
    command = ["invoke", "--data-dir", str(tmp_path / "data"), *arguments]
    error = CliRunner().invoke(main, command).exception
    assert isinstance(error, BadInput)
    assert told in str(error)
    assert "\n" not in str(error)


def test_in_lambdas_json_format_a_line_has_the_requests_id_as_a_field(tmp_path, monkeypatch):
    monkeypatch.setenv("KEYLANE_REDIS_NODES", "127.0.0.1:1")
    monkeypatch.setenv("AWS_LAMBDA_LOG_FORMAT", "JSON")
    done = keylane(tmp_path, "query", "--event", str(EVENT))
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    [line] = [each for each in lines if each.get("logger") == "keylane"]
    metrics = [each for each in lines if "_aws" in each]
    event = json.loads(EVENT.read_text())
    assert line["correlation_id"] == event["requestContext"]["requestId"]
    assert (line["level"], line["problem"]) == ("WARNING", "state-unavailable")
    assert line["requestId"]
    assert metrics
    assert "message" not in metrics[0]
