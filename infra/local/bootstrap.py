"""Set-up: `python3 infra/local/bootstrap.py [STEP...]` makes what is missing and leaves what is there.

Steps: python (.venv with the packages), java, redis, jars (Kafka and Spark's connector), archive (of Spark's
classes), by default; registry (Apicurio's Schema Registry, for the tests), sam (AWS SAM, with cfn-lint) and
localstack, each of these two in a virtual environment of its own, where they are named.
Standard library only, since it runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))

from keylane_local import tools

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_PYTHON = (3, 11)
LOCALSTACK = "localstack-core[runtime]==4.14.0"
# One of its packages has no release for anything newer that would go with the others.
MAX_LOCALSTACK_PYTHON = (3, 13)
LAMBDA_PACKAGES = ("awslambdaric", "boto3")
ATTEMPTS = 3
PAUSE_S = 3.0
TAIL_LINES = 25
NOTE_EVERY_S = 15.0
# setuptools is among LocalStack's packages already.
_FROM_SOURCE = ("--no-deps", "--no-build-isolation", "--force-reinstall")
JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
REDIS_PACKAGES = ("redis-server", "valkey-server", "valkey")
JAVA_HINT = (
    "Java 17 or newer is missing. Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless;"
    ' macOS: brew install openjdk@17 && export JAVA_HOME="$(brew --prefix openjdk@17)"'
)
REDIS_HINT = (
    "a Redis or Valkey server of version 7.0 or newer is missing. Debian, Ubuntu: sudo apt-get install"
    " redis-server; macOS: brew install redis"
)


class SetupError(Exception):
    """A step failed; the text says what to do, `log` has the details."""

    def __init__(self, step: str, reason: str, log: Path | None = None) -> None:
        super().__init__(reason)
        self.step = step
        self.log = log


def say(step: str, text: str) -> None:
    """Print one line of progress."""
    print(f"[setup] {step:<7} {text}", flush=True)


def digest(*parts: str) -> str:
    """Return a hash of the inputs of a step."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Setup:
    """The set-up of one checkout."""

    def __init__(self, root: Path, tools_dir: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.tools = tools_dir
        self._apt_updated = False

    @property
    def venv_python(self) -> Path:
        """The virtual environment's interpreter."""
        return self.venv / "bin" / "python"

    def python(self) -> None:
        """Make .venv with the project and all its extras, at the versions of constraints.txt."""
        inputs = [str(self.root), sys.version]
        inputs += [
            (self.root / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "constraints.txt")
        ]
        wanted = digest(*inputs)
        stamp = self.venv / ".keylane-stamp"
        if _read(stamp) == wanted and self.venv_python.exists():
            return
        if importlib.util.find_spec("ensurepip") is None:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            self._apt("python", (f"python{version}-venv",), "this Python cannot make virtual environments")
        stamp.unlink(missing_ok=True)
        self._run("python", "virtual environment", [sys.executable, "-m", "venv", "--clear", ".venv"])
        install = [
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "-e",
            ".[dev]",
            "-c",
            "constraints.txt",
        ]
        self._run("python", "packages", [str(self.venv_python), *install], attempts=ATTEMPTS)
        stamp.write_text(wanted, encoding="utf-8")

    def java(self) -> None:
        """See to a Java of version 17 or newer."""
        if not tools.find_java():
            self._apt("java", JAVA_PACKAGES, JAVA_HINT, lambda: tools.find_java() is not None)

    def redis(self) -> None:
        """See to a Redis or Valkey server of version 7.0 or newer."""
        if not tools.find_redis():
            self._apt("redis", REDIS_PACKAGES, REDIS_HINT, lambda: tools.find_redis() is not None)

    def jars(self) -> None:
        """Fetch the jars of pom.xml by the Ivy that PySpark carries."""
        pom = (self.root / "pom.xml").resolve()
        stamp = self.tools / "jars.json"
        wanted = digest(pom.read_text(encoding="utf-8"))
        have = json.loads(_read(stamp) or "{}")
        jars = self.tools / "jars"
        if have.get("inputs") == wanted and all((jars / name).exists() for name in have["jars"]):
            return
        new = self.tools / "jars.new"
        self._retrieve("jars", "Kafka and Spark's connector", pom, new)
        names = sorted(path.name for path in new.glob("*.jar"))
        if not any(name.startswith("kafka_") for name in names):
            raise SetupError("jars", "Ivy ended well but fetched no Kafka", self._log("jars"))
        shutil.rmtree(jars, ignore_errors=True)
        new.rename(jars)
        stamp.write_text(json.dumps({"inputs": wanted, "jars": names}), encoding="utf-8")

    def registry(self) -> None:
        """Fetch and unpack the Schema Registry of tests/registry/pom.xml, by the same Ivy."""
        pom = (self.root / "tests" / "registry" / "pom.xml").resolve()
        folder = self.tools / "registry"
        stamp = folder / "keylane-stamp"
        wanted = digest(pom.read_text(encoding="utf-8"))
        if _read(stamp) == wanted:
            return
        new = self.tools / "registry.new"
        self._retrieve("registry", "Apicurio's Schema Registry", pom, new)
        archive = next(new.glob("*.tar.gz"), None)
        if archive is None:
            raise SetupError("registry", "Ivy ended well but fetched nothing", self._log("registry"))
        shutil.rmtree(folder, ignore_errors=True)
        self._run("registry", "unpacking", ["tar", "-xzf", str(archive), "-C", str(new)])
        archive.unlink()
        new.rename(folder)
        stamp.write_text(wanted, encoding="utf-8")

    def sam(self) -> None:
        """Make a virtual environment of AWS SAM's own: its versions of what we use are others."""
        pins = self.root / "infra" / "sam" / "requirements.txt"
        folder = self.tools / "sam"
        stamp = folder / "keylane-stamp"
        wanted = digest(str(folder), sys.version, pins.read_text(encoding="utf-8"))
        if _read(stamp) == wanted:
            return
        self._run("sam", "virtual environment", [sys.executable, "-m", "venv", "--clear", str(folder)])
        install = ["-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "-r", str(pins)]
        self._run("sam", "AWS SAM", [str(folder / "bin" / "python"), *install], attempts=ATTEMPTS)
        stamp.write_text(wanted, encoding="utf-8")

    def localstack(self) -> None:
        """Make LocalStack's own virtual environment, with the executor, and that of the functions it runs."""
        folder = self.tools / "localstack"
        ours = self.root / "infra" / "local" / "localstack_setup"
        executor = self.root / "infra" / "local" / "localstack-process-executor"
        python = _python_up_to(MAX_LOCALSTACK_PYTHON)
        if python is None:
            newest = ".".join(map(str, MAX_LOCALSTACK_PYTHON))
            raise SetupError("localstack", f"LocalStack needs a Python of 3.11 to {newest}, on PATH")
        files = sorted([*ours.iterdir(), *executor.glob("*.toml"), *executor.glob("localstack_*/*.py")])
        lambda_folder = self.tools / "lambda"
        pins = self.root / "constraints.txt"
        inputs = [str(folder), python, LOCALSTACK, sys.version, pins.read_text(encoding="utf-8")]
        inputs += [path.read_text(encoding="utf-8") for path in files if path.is_file()]
        wanted = digest(*inputs)
        stamp = folder / "keylane-stamp"
        venv_python = folder / "bin" / "python"
        if _read(stamp) == wanted and venv_python.exists():
            return
        stamp.unlink(missing_ok=True)
        self._run("localstack", "virtual environment", [python, "-m", "venv", str(folder)])
        install = [str(venv_python), "-m", "pip", "install", "--disable-pip-version-check"]
        pinned = ["-c", str(ours / "constraints.txt"), LOCALSTACK]
        self._run("localstack", "packages", [*install, *pinned], attempts=ATTEMPTS)
        self._run("localstack", "executor", [*install, *_FROM_SOURCE, str(executor)])
        self._run("localstack", "for this Python", [str(venv_python), "-I", str(ours / "backport.py")])
        # What AWS's image of the runtime has: a layer that lacks a package must fail here, too.
        self._run("localstack", "functions", [sys.executable, "-m", "venv", str(lambda_folder)])
        install[0] = str(lambda_folder / "bin" / "python")
        self._run(
            "localstack", "runtime client", [*install, "-c", str(pins), *LAMBDA_PACKAGES], attempts=ATTEMPTS
        )
        stamp.write_text(wanted, encoding="utf-8")

    def archive(self) -> None:
        """Make the JVM's archive of Spark's classes: with it jobs start sooner.

        Without it all works as well, so nothing fails with this step.
        """
        java = Path(tools.find_java() or "java").resolve()
        made_of = [path for path in (java, self.venv / ".keylane-stamp") if path.exists()]
        wanted = digest(*(f"{path} {path.stat().st_mtime_ns}" for path in made_of))
        stamp = self.venv / ".keylane-archive"
        if _read(stamp) == wanted:
            return
        try:
            self._run(
                "archive",
                "Spark's classes",
                [str(self.venv_python), "-m", "keylane_spark.engine.class_archive"],
            )
        except SetupError:
            say("archive", "goes on without: jobs start more slowly")
        stamp.write_text(wanted, encoding="utf-8")

    def _retrieve(self, step: str, what: str, pom: Path, folder: Path) -> None:
        """Fill a new folder of the tools' with what the pom names."""
        ivy = next(self.venv.glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar"), None)
        java = tools.find_java()
        if ivy is None or java is None:
            raise SetupError(step, "the steps python and java come first")
        shutil.rmtree(folder, ignore_errors=True)
        # Relative, since a pattern would read brackets in the folder's name as its own.
        pattern = f"{folder.name}/[artifact]-[revision](-[classifier]).[ext]"
        command = [java, "-cp", str(ivy), "org.apache.ivy.Main", "-ivy", str(pom), "-confs", "runtime"]
        command += ["-retrieve", pattern, "-cache", "ivy-cache"]
        if settings := os.environ.get("KEYLANE_IVY_SETTINGS"):
            command += ["-settings", str(Path(settings).absolute())]
        self._run(step, what, command, attempts=ATTEMPTS, cwd=self.tools)

    def _apt(
        self, step: str, packages: tuple[str, ...], hint: str, done: Callable[[], bool] | None = None
    ) -> None:
        """Install the first of `packages` after which `done` holds; raise with `hint` where that can't be."""
        if not (hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get")):
            raise SetupError(step, hint)
        # At no run level invoke-rc.d starts nothing: the stack starts servers of its own.
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        if not self._apt_updated:
            self._run(step, "apt-get update", ["apt-get", "update"], attempts=ATTEMPTS, env=environment)
            self._apt_updated = True
        for package in packages:
            command = ["apt-get", "install", "-y", "--no-install-recommends", package]
            try:
                self._run(step, f"apt-get install {package}", command, attempts=2, env=environment)
            except SetupError:
                continue
            if done is None or done():
                return
        raise SetupError(step, hint, self._log(step))

    def _log(self, step: str) -> Path:
        return self.tools / "logs" / f"{step}.log"

    def _run(
        self,
        step: str,
        what: str,
        command: list[str],
        *,
        attempts: int = 1,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        """Run one program, its output in the step's log; raise SetupError when all attempts failed."""
        log = self._log(step)
        log.parent.mkdir(parents=True, exist_ok=True)
        (self.tools / ".gitignore").write_text("*\n", encoding="utf-8")
        for attempt in range(1, attempts + 1):
            again = "" if attempt == 1 else f" (attempt {attempt} of {attempts})"
            say(step, f"{what} ...{again}")
            started = time.monotonic()
            with log.open("ab") as output, _Notes(step, what):
                output.write(f"$ {' '.join(command)}\n".encode())
                output.flush()
                code = subprocess.run(
                    command,
                    cwd=cwd or self.root,
                    env=env,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    check=False,
                ).returncode
            if code == 0:
                say(step, f"{what}: done in {time.monotonic() - started:.1f} s")
                return
            say(step, f"{what}: failed after {time.monotonic() - started:.1f} s (exit code {code})")
            if attempt < attempts:
                time.sleep(PAUSE_S)
        raise SetupError(step, f"{what} failed", log)


class _Notes:
    """Says every NOTE_EVERY_S that a long step still goes on."""

    def __init__(self, step: str, what: str) -> None:
        self._step, self._what = step, what
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)
        self._started = time.monotonic()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _go(self) -> None:
        while not self._done.wait(NOTE_EVERY_S):
            say(self._step, f"{self._what} ... {time.monotonic() - self._started:.0f} s")


def _python_up_to(newest: tuple[int, int]) -> str | None:
    """Return this Python, or one on PATH, that is no newer than `newest` and no older than MIN_PYTHON."""
    if sys.version_info[:2] <= newest:
        return sys.executable
    for minor in range(newest[1], MIN_PYTHON[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        # pyenv has programs of that name that only say that the version isn't chosen.
        if found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _end_of(log: Path) -> str:
    return "\n".join((_read(log) or "").splitlines()[-TAIL_LINES:])


def main(arguments: list[str]) -> int:
    """Do the steps named, or all; return the exit code."""
    if sys.version_info < MIN_PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        print(f"Keylane needs Python 3.11 or newer, this is {found}: run `make PY=python3.11 ...`")
        return 1
    setup = Setup(tools.project_root(), tools.tools_dir())
    defaults = ("python", "java", "redis", "jars")
    # A chain's steps follow one another, the chains run side by side: they need nothing of each other.
    chains = ((*defaults, "registry", "archive"), ("sam", "localstack"))
    if unknown := [name for name in arguments if not any(name in chain for chain in chains)]:
        print(f"no such step: {', '.join(unknown)}; there are {', '.join(itertools.chain(*chains))}")
        return 2
    wanted = [[name for name in chain if name in (arguments or defaults)] for chain in chains]

    def run(names: list[str]) -> None:
        for name in names:
            getattr(setup, name)()

    try:
        with ThreadPoolExecutor() as pool:
            try:
                for done in [pool.submit(run, names) for names in wanted if names]:
                    done.result()
            except KeyboardInterrupt:
                os._exit(130)  # the programs were interrupted as well: no thread is to try them again
    except SetupError as error:
        if error.log:
            print(f"\nThe end of {error.log}:\n{_end_of(error.log)}\n")
        say(error.step, f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
