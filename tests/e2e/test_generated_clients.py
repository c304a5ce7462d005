"""Clients that generators make of docs/openapi.json, in five languages: a put, a get, a page and a find."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.node import node_program
from tests.support.project_files import ROOT

from keylane_local.tools import tools_dir

HERE, DOCUMENT = Path(__file__).parent, str(ROOT / "docs" / "openapi.json")
WITHIN_S = 1500
"""So long Rust's compiler takes beside much else."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * WITHIN_S)]


@dataclass(frozen=True)
class Language:
    """How a client is made and run in an empty folder: its commands in their order.

    The last one gets the server's address and a key. `program`: where the file of this folder with the same
    suffix has to be. `toolchain`: what has to be installed beside the generators.
    """

    commands: tuple[tuple[str, ...], ...]
    program: str
    toolchain: str = ""


def openapi_generator(language: str, *options: str, **properties: str) -> tuple[str, ...]:
    """The command of openapi-generator that makes a client, without its tests and documents."""
    left_out = ",".join(f"{each}=false" for each in ("apiTests", "modelTests", "apiDocs", "modelDocs"))
    command = ("openapi-generator-cli", "generate", "-i", DOCUMENT, "-o", ".", "--global-property", left_out)
    named = ",".join(f"{name}={value}" for name, value in properties.items())
    return (*command, "-g", language, *options, "--additional-properties", named)


OPENAPI_PYTHON_CLIENT = ("openapi-python-client", "generate", "--output-path", "made", "--meta", "none")
NODE = (str(node_program()), "--experimental-transform-types", "--no-warnings")
"""Classes of typescript-fetch have parameters that are properties: more than types that can be left out."""
KNOWN_ONLY = "disallowAdditionalPropertiesIfNotPresent"
"""If true, as it is without being set, a client fails for a property that a newer server adds."""
LANGUAGES = {
    "openapi-python-client": Language(
        (
            (*OPENAPI_PYTHON_CLIENT, "--path", DOCUMENT),
            ("python", "generated_client.py"),
        ),
        program="generated_client.py",
    ),
    "typescript-fetch": Language(
        (openapi_generator("typescript-fetch", importFileExtension=".ts"), (*NODE, "generated_client.ts")),
        program="generated_client.ts",
    ),
    "go": Language(
        (
            openapi_generator(
                "go",
                *("--git-host", "example.org", "--git-user-id", "keylane", "--git-repo-id", "client"),
                packageName="keylane",
                **{KNOWN_ONLY: "false"},
            ),
            ("go", "run", "./program"),
        ),
        program="program/main.go",
        toolchain="go",
    ),
    "java": Language(
        (
            # The library `native` sends the name of a file in place of its bytes.
            openapi_generator("java", useSingleRequestParameter="true", **{KNOWN_ONLY: "false"}),
            ("mvn", "--quiet", "compile", "dependency:copy-dependencies"),
            ("java", "-cp", "target/classes:target/dependency/*", "generated_client.java"),
        ),
        program="generated_client.java",
        toolchain="mvn",
    ),
    "rust": Language(
        (
            openapi_generator("rust", packageName="keylane"),
            # Without TLS it needs no library of the system.
            ("cargo", "run", "--quiet", "--no-default-features", "--example", "program"),
        ),
        program="examples/program.rs",
        toolchain="cargo",
    ),
}


def run(folder: Path, *command: str) -> str:
    """Run a program, also of the generators' environment, in the folder; return what it prints."""
    generators = tools_dir() / "generators"
    variables = {
        "PATH": f"{generators / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": "",
        "GOFLAGS": "-mod=mod",
        "CARGO_TARGET_DIR": str(generators / "cargo"),
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_generated_client_reads_and_writes(applied_stack, tmp_path, name: str):
    language = LANGUAGES[name]
    if language.toolchain and not shutil.which(language.toolchain):
        pytest.skip(f"{language.toolchain}, which compiles the client, is not installed")
    *making, running = language.commands
    for command in making:
        run(tmp_path, *command)
    program = tmp_path / language.program
    program.parent.mkdir(exist_ok=True)
    shutil.copy(HERE / f"generated_client{program.suffix}", program)
    key = f"generated-{uuid.uuid4().hex}"
    printed = run(tmp_path, *running, applied_stack.http_url, key)
    assert json.loads(printed) == [{"to": "Zug", "fare": 12.5}, [key], [key]]
