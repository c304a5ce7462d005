"""Clients that generators make of docs/openapi.json put, get, page and find on the stack."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from pathlib import Path

import pytest
from tests.support.node import run_node
from tests.support.project_files import ROOT

from keylane_local.tools import tools_dir

HERE, DOCUMENT = Path(__file__).parent, ROOT / "docs" / "openapi.json"
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def run(*command: str | Path) -> str:
    """Run a program of the generators' environment; return what it prints."""
    programs = tools_dir() / "generators" / "bin"
    path = f"{programs}:{os.environ['PATH']}"
    done = subprocess.run(
        [programs / command[0], *command[1:]],
        env={**os.environ, "PATH": path, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def assert_found(printed: str, key: str) -> None:
    assert json.loads(printed) == [{"to": "Zug", "fare": 12.5}, [key], [key]]


def test_a_client_of_openapi_python_client_reads_and_writes(applied_stack, tmp_path):
    key, settings = f"generated-{uuid.uuid4().hex}", tmp_path / "settings.yml"
    settings.write_text("post_hooks: []\n", encoding="utf-8")  # it is not to be formatted
    made = ("--output-path", tmp_path / "made", "--meta", "none", "--config", settings)
    run("openapi-python-client", "generate", "--path", DOCUMENT, *made)
    assert_found(run("python", HERE / "generated_client.py", tmp_path, applied_stack.http_url, key), key)


def test_a_client_of_typescript_fetch_reads_and_writes(applied_stack, tmp_path):
    key = f"generated-{uuid.uuid4().hex}"
    made = ("-o", tmp_path, "--additional-properties", "importFileExtension=.ts")
    run("openapi-generator-cli", "generate", "-g", "typescript-fetch", "-i", DOCUMENT, *made)
    program = HERE / "generated_client.ts"
    # Its classes have parameters that are properties: more than types that can be left out.
    options = ("--experimental-transform-types", "--no-warnings")
    assert_found(run_node(*options, program, tmp_path, applied_stack.http_url, key), key)
