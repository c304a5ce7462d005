"""What a start of the stack needs and pip does not install: Java, Redis, and Kafka's jars."""

import fcntl
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from keylane_local import tools
from keylane_local.errors import ToolMissing
from keylane_local.setup.ivy import BROKER, Ivy
from keylane_local.setup.runner import Runner

JAVA, REDIS = "java", "redis"
_NAMES = {
    JAVA: f"Java {tools.MIN_JAVA} or newer",
    REDIS: f"Redis (or Valkey) {'.'.join(map(str, tools.MIN_REDIS))} or newer",
}
_DEBIAN = {JAVA: "openjdk-17-jre-headless", REDIS: "redis-server"}
_HOMEBREW = {JAVA: "openjdk@17", REDIS: "redis"}


def require_programs(*wanted: str) -> None:
    """Raise ToolMissing, with the command that installs them, if a wanted program is missing."""
    found = {JAVA: tools.find_java, REDIS: tools.find_redis}
    if missing := [name for name in wanted if not found[name]()]:
        names = " and ".join(_NAMES[name] for name in missing)
        verb = "is" if len(missing) == 1 else "are"
        raise ToolMissing(f"{names} {verb} missing. To install: {install_command(*missing)}")


def install_command(*names: str) -> str:
    """Return the command that installs programs on this system."""
    debian = f"sudo apt-get install --no-install-recommends {' '.join(_DEBIAN[name] for name in names)}"
    homebrew = f"brew install {' '.join(_HOMEBREW[name] for name in names)}"
    if shutil.which("apt-get"):
        return debian
    return homebrew if shutil.which("brew") else f"{debian} (Debian, Ubuntu), or {homebrew}"


def fetch_jars() -> None:
    """Download Kafka's and the connector's jars, unless they are there. Raises SetupError."""
    folder = tools.tools_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second start waits, and then finds them
        ivy = Ivy(Runner(folder, folder), tools.project_root(), folder, _pyspark_jars)
        ivy.refill("jars", "jars", ivy.retrieve_jars, BROKER)


def _pyspark_jars() -> Iterator[Path]:
    spec = find_spec("pyspark")
    if spec and spec.origin:
        yield Path(spec.origin).parent / "jars"
