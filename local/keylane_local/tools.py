"""Where the stack's programs are installed. Standard library only: the set-up imports it too."""

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

MIN_JAVA = 17
MIN_REDIS = (7, 0)
OLDER_SPARK = "4.0.2"
"""The version of Spark that the job supports beside that of constraints.txt: EMR Serverless has it."""
# Valkey's versions start at 7.2, so one bound fits both.
_REDIS_NAMES = ("redis-server", "valkey-server")
_CHROMIUM_NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
)
_VERSION_TIMEOUT_S = 20
_SHIPPED = Path(__file__).resolve().parent / "shipped"
"""In an installed package: the files of the checkout that are not Python (`shipped` in pyproject.toml)."""


def is_checkout() -> bool:
    """Return whether this is a checkout, and not an installed package."""
    return not _SHIPPED.is_dir()


def project_root() -> Path:
    """Return the checkout's root, or the folder of an installed package with files at the same paths."""
    return Path(__file__).resolve().parents[2] if is_checkout() else _SHIPPED


def layer_sources() -> Path:
    """Return the folder that holds the package `keylane`."""
    spec = find_spec("keylane")
    assert spec is not None  # noqa: S101 - for the type checker: it is installed with this package
    assert spec.origin is not None  # noqa: S101
    return Path(spec.origin).resolve().parents[1]


def tools_dir() -> Path:
    """Return the folder of what is downloaded: KEYLANE_TOOLS, else .keylane-tools in the checkout.

    An installed package has a folder for its version among the user's caches.
    """
    if given := os.environ.get("KEYLANE_TOOLS"):
        return Path(given).absolute()
    return project_root() / ".keylane-tools" if is_checkout() else _cache_dir() / metadata.version("keylane")


def _cache_dir() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "keylane"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "keylane"


def jars_dir(spark: str = "") -> Path:
    """Return the folder of the jars for a version of Spark. Only OLDER_SPARK has one without a broker's."""
    return tools_dir() / (f"jars-{spark}" if spark == OLDER_SPARK else "jars")


def older_spark_dir() -> Path:
    """Return the virtual environment with OLDER_SPARK: its other packages are those of .venv."""
    return tools_dir() / f"spark-{OLDER_SPARK}"


def console_dir() -> Path:
    """Return the folder of the console's files."""
    return project_root() / "clients" / "console"


def _version_text(program: str, option: str) -> str:
    try:
        done = subprocess.run(
            [program, option],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def java_version(java: str) -> int | None:
    """Return the major version of the program `java`, or None if it does not run (like macOS's stub)."""
    found = re.search(r'version "(?:1\.)?(\d+)', _version_text(java, "-version"))
    return int(found[1]) if found else None


def redis_version(server: str) -> tuple[int, int] | None:
    """Return (major, minor) of a redis-server or valkey-server, or None if it does not run."""
    found = re.search(r"\bv=(\d+)\.(\d+)", _version_text(server, "--version"))
    return (int(found[1]), int(found[2])) if found else None


def find_java() -> str | None:
    """Return the path of Java MIN_JAVA or newer, from JAVA_HOME, else from PATH; else None."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    if on_path := shutil.which("java"):
        candidates.append(on_path)
    return next((java for java in candidates if (java_version(java) or 0) >= MIN_JAVA), None)


def find_redis() -> str | None:
    """Return the path of a redis-server or valkey-server MIN_REDIS or newer on PATH, or None."""
    candidates = [path for name in _REDIS_NAMES if (path := shutil.which(name))]
    return next((server for server in candidates if (redis_version(server) or (0, 0)) >= MIN_REDIS), None)


def localstack_python() -> Path:
    """Return the interpreter of LocalStack's virtual environment."""
    return tools_dir() / "localstack" / "bin" / "python"


def lambda_python() -> Path:
    """Return the interpreter of functions in LocalStack: its packages are those of Lambda's runtime."""
    return tools_dir() / "lambda" / "bin" / "python"


def find_chromium() -> str | None:
    """Return the path of a Chromium or Chrome that runs (Ubuntu has a stub that does not); else None.

    The one without windows comes first: the tests of the console take half the processor time with it.
    """
    on_path = map(shutil.which, _CHROMIUM_NAMES)
    return next((browser for browser in on_path if browser and _version_text(browser, "--version")), None)
