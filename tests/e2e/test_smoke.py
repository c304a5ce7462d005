"""`keylane smoke` against the local stack: all is well, and what it says when something is not."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from tests.support.http_doubles import Exchange, HttpDouble

from keylane_client.cli.commands import keylane
from keylane_client.cli.errors import BadArgument
from keylane_local.process.ports import HOST, Ports

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "flights"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}


def smoke(url: str, *options: str, **variables: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the document that `--json` prints."""
    result = CliRunner().invoke(keylane, ["smoke", url, "--json", *options], env=variables)
    found: dict[str, Any] = json.loads(result.stdout)
    return result.exit_code, found


def faults(document: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: f"{each['fault']}: {each['advice']}" for each in document["steps"] if each["fault"]}


def test_a_stack_that_works_passes_and_no_key_is_left(stack, client):
    code, found = smoke(stack.http_url, "--topic", TOPIC, "--key", "smoked")
    assert (code, found["ok"], faults(found)) == (0, True, {})
    names = [each["name"] for each in found["steps"]]
    assert names == ["health", "topic", "write", "read", "freshness", "delete", "absent"]
    assert client.get(TOPIC, b"smoked").status == 404


def test_people_read_a_line_for_each_step(stack):
    result = CliRunner().invoke(keylane, ["smoke", stack.http_url, "--topic", "no-topic"])
    assert result.exit_code == 1
    first, second, advice, last = result.stdout.splitlines()
    assert first.startswith("ok")
    assert second.startswith("failed")
    assert "unknown-topic" in second
    assert "add it to keylane.toml" in advice
    assert last == "Something is wrong: see above."


def test_a_url_without_a_server_is_named():
    code, found = smoke(f"http://{HOST}:{Ports().any()}", "--topic", TOPIC)
    assert (code, list(faults(found))) == (1, ["health"])
    assert "cannot be reached" in faults(found)["health"]


def test_a_url_below_which_there_is_no_api_is_named(stack):
    code, found = smoke(f"{stack.http_url}/v2", "--topic", TOPIC)
    assert code == 1
    assert "404" in faults(found)["health"]


def test_while_the_job_is_down_the_wait_runs_out_and_the_key_is_deleted(stack, client):
    stack.job.kill()
    try:
        code, found = smoke(stack.http_url, "--topic", TOPIC, "--key", "late", "--timeout", "2")
    finally:
        stack.job.start()
        stack.job.wait_ready()
    assert code == 1
    assert list(faults(found)) == ["read"]
    assert "the job does not apply the log" in faults(found)["read"]
    deleted = found["steps"][-1]
    assert (deleted["name"], deleted["fault"]) == ("delete", "")
    position = deleted["did"].rpartition(" ")[2]
    answer = client.get_at(TOPIC, b"late", position)
    assert answer.status == 404


@contextmanager
def gateway() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """API Gateway where it rejects a caller; and the headers of the requests."""
    seen: list[dict[str, str]] = []

    def reject(asked: Exchange) -> None:
        seen.append({name.lower(): value for name, value in asked.headers.items()})
        asked.answer(403, b'{"message": "Forbidden"}')

    with HttpDouble(reject) as server:
        yield f"{server.url}/v1", seen


@pytest.mark.parametrize(
    ("options", "variables", "header", "begins"),
    [
        (["--api-key", "k1"], {}, "x-api-key", "k1"),
        ([], {"KEYLANE_API_KEY": "k2"}, "x-api-key", "k2"),
        (["--authorization", "Bearer t"], {}, "authorization", "Bearer t"),
        (
            ["--sign", "--region", "eu-central-1"],
            CREDENTIALS,
            "authorization",
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/",
        ),
    ],
)
def test_a_caller_that_is_rejected_reads_how_to_be_let_in(
    options: list[str], variables: dict[str, str], header: str, begins: str
):
    with gateway() as (url, seen):
        code, found = smoke(url, "--topic", TOPIC, *options, **variables)
    assert code == 1
    assert "403" in faults(found)["health"]
    assert "--api-key" in faults(found)["health"]
    assert seen[0][header].startswith(begins)


def test_a_signature_without_a_region_is_refused():
    result = CliRunner().invoke(
        keylane, ["smoke", "http://x", "--topic", TOPIC, "--sign"], env={"AWS_REGION": None}
    )
    assert isinstance(result.exception, BadArgument)
    assert result.exception.exit_code == 2
    assert "--region" in str(result.exception)
