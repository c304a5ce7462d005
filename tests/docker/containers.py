"""The stack of compose.yaml in containers, and `sam local` beside it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from tests.docker.stand_ins import image_names
from tests.e2e.client import Client
from tests.servers.own import eventually

from keylane_build import templates
from keylane_local.process.ports import Ports

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PROJECT = "keylane-test"
NETWORK = f"{PROJECT}_default"
REGISTRY = "http://registry:8081"
"""The service of tests/docker/compose.yaml."""
BUILD_TIMEOUT_S = 1500.0


def missing() -> str:
    """Return why no containers can be run here; empty if they can."""
    if not shutil.which("docker"):
        return "docker is not installed"
    for command, reason in (
        (["docker", "info"], "no Docker engine answers"),
        (["docker", "compose", "version"], "docker has no compose plugin"),
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            return f"{reason}: {done.stderr.strip()}"
    return ""


class Compose:
    """The project's compose.yaml as a project of its own, so that a user's own stack stays as it is."""

    def __init__(self) -> None:
        options = ("--file", "compose.yaml", "--file", "tests/docker/compose.yaml")
        self._command = ["docker", "compose", "--project-name", PROJECT, *options]

    def run(self, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a subcommand of `docker compose`."""
        return subprocess.run(
            [*self._command, *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def inside(self, service: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a service's container."""
        return self.run("exec", "--no-TTY", service, *command)

    def up(self) -> None:
        """Build the images, start everything, and wait until all of it is healthy."""
        done = self.run("up", "--build", "--wait", timeout_s=BUILD_TIMEOUT_S)
        assert done.returncode == 0, f"{done.stderr[-4000:]}\n{self.run('logs', '--tail', '30').stdout}"

    def down(self) -> None:
        """Remove everything but the images."""
        self.run("down", "--volumes", "--timeout", "5")

    def restarts(self) -> list[int]:
        """How often each container was started again."""
        containers = self.run("ps", "--all", "--quiet").stdout.split()
        command = ["docker", "inspect", "--format", "{{.RestartCount}}", *containers]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return list(map(int, done.stdout.split()))

    @property
    def url(self) -> str:
        """Where the server serves HTTP, of this machine's addresses."""
        return f"http://{self.run('port', 'server', '8080').stdout.strip()}"


def build_functions() -> None:
    """Build the layer and the functions, as `make build` does."""
    path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [templates.program("sam"), "build"],
        cwd=ROOT,
        env=templates.environment() | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr


def _sam_local(command: str, *arguments: str) -> list[str]:
    """`sam local` in the tests' network; without asking a registry for an image that is there."""
    lambda_image = next(name for name in image_names() if name.startswith("public.ecr.aws/lambda/"))
    found = subprocess.run(["docker", "image", "inspect", lambda_image], capture_output=True, check=False)
    pulled = [] if found.returncode else ["--skip-pull-image"]
    network = ("--docker-network", NETWORK, "--env-vars", str(_write_variables()))
    return [templates.program("sam"), "local", command, *arguments, *network, *pulled]


def _write_variables() -> Path:
    """Write those of events/env.json, and the registry; return the file."""
    variables = json.loads((ROOT / "events" / "env.json").read_text("utf-8"))
    variables["Parameters"]["KEYLANE_SCHEMA_REGISTRY_URL"] = REGISTRY
    file = ROOT / "build" / "sam-local-env.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(variables), encoding="utf-8")
    return file


def invoke(function: str, event: Path) -> dict[str, object]:
    """Return what a function answers to an event."""
    done = subprocess.run(
        _sam_local("invoke", f"{function.capitalize()}Function", "--event", str(event)),
        cwd=ROOT,
        env=templates.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def start_api() -> contextlib.AbstractContextManager[str]:
    """Yield the URL of a running `sam local start-api`."""
    return _serve("start-api")


def start_lambda() -> contextlib.AbstractContextManager[str]:
    """Yield the URL of a running `sam local start-lambda`."""
    return _serve("start-lambda")


def invoke_at(url: str, function: str, event: Path) -> dict[str, object]:
    """Return what a function of `sam local start-lambda` answers to an event."""
    path = f"/2015-03-31/functions/{function.capitalize()}Function/invocations"
    answer = httpx.post(f"{url}{path}", content=event.read_bytes(), timeout=600)
    assert answer.status_code == 200, answer.text
    return answer.json()


@contextlib.contextmanager
def _serve(what: str) -> Iterator[str]:
    port = Ports().any()
    command = _sam_local(what, "--port", str(port))
    with subprocess.Popen(
        command, cwd=ROOT, env=templates.environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        lines: list[str] = []
        reader = threading.Thread(target=lines.extend, args=(process.stderr,), daemon=True)
        reader.start()
        try:
            url = f"http://127.0.0.1:{port}"
            eventually(lambda: process.poll() is not None or _answers(url), 300)
            assert process.poll() is None, "".join(lines)
            yield url
        finally:
            process.terminate()
            process.wait(120)  # SAM stops its containers one after the other
            reader.join(10)


def _answers(url: str) -> bool:
    client = Client(url)
    try:
        return client.request("GET", "/nothing/of/this/name").status > 0
    except OSError:
        return False
    finally:
        client.close()
