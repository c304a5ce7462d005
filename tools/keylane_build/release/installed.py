"""An environment with a package of a release, outside the checkout."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from keylane_build.release.versions import NotReleasable

_COMMAND_S, _ANSWER_S = 900.0, 60.0
_INSTALL_S = 2_400.0
"""pip builds a wheel of PySpark, which takes a busy machine a quarter of an hour."""


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with a package of the release, and an empty folder beside it."""

    environment: Path
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """Those of this process, without what would lead back to the checkout."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("KEYLANE_", "PYTHON"))
        }
        kept |= {"XDG_CACHE_HOME": str(self.environment / "caches"), "NO_COLOR": "1"}
        kept.pop("VIRTUAL_ENV", None)
        return kept | {"PATH": f"{self.environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def inside(self, folder: str) -> "Installed":
        """The same environment, used in a folder of its folder."""
        return replace(self, folder=self.folder / folder)

    def run(self, *command: str, exit_code: int = 0, **variables: str) -> str:
        """Run a program of the environment in the folder; return what it prints.

        Raises NotReleasable if it ends with another exit code.
        """
        done = subprocess.run(
            [str(self.environment / "bin" / command[0]), *command[1:]],
            cwd=self.folder,
            env=self.variables | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_INSTALL_S if command[0] == "pip" else _COMMAND_S,
            check=False,
        )
        if done.returncode != exit_code:
            raise NotReleasable(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def expect(self, wanted: str, *command: str, exit_code: int = 0) -> None:
        """Run a program; raise NotReleasable unless it prints `wanted`."""
        if wanted not in (printed := self.run(*command, exit_code=exit_code)):
            raise NotReleasable(f"{' '.join(command)} does not say {wanted!r}:\n{printed}")


@contextlib.contextmanager
def install(name: str, built: Path, version: str, constraints: Path) -> Iterator[Installed]:
    """Install the package `name` of the folder `built`."""
    with tempfile.TemporaryDirectory(prefix="keylane-release-") as work:
        here = Installed(Path(work, "environment"), Path(work, "empty"))
        here.folder.mkdir()
        started_s = time.monotonic()
        subprocess.run([sys.executable, "-m", "venv", str(here.environment)], check=True)
        pip = ("pip", "install", "--quiet", "--disable-pip-version-check")
        here.run(
            *pip,
            "--find-links",
            str(built.absolute()),
            f"{name}=={version}",
            "--constraint",
            str(constraints),
        )
        print(f"{name}: installed in {time.monotonic() - started_s:.0f} s", flush=True)
        yield here


def wait_for(url: str, what_said: Callable[[], str], headers: Mapping[str, str] | None = None) -> bytes:
    """Return the body of the first answer that is a success.

    Raises NotReleasable, with `what_said()`, if there is none in time.
    """
    until_s = time.monotonic() + _ANSWER_S
    request = urllib.request.Request(url, headers=headers or {})  # noqa: S310 (a server of the release)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                return bytes(answer.read())
        except OSError as error:
            if time.monotonic() > until_s:
                raise NotReleasable(f"{url}: {error}\n{what_said()}") from error
            time.sleep(0.05)
