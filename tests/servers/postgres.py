"""PostgreSQL with logical decoding, as Debian packages it: a database of one's own on a free port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from keylane_local.process.ports import HOST
from keylane_local.process.program import Program

if TYPE_CHECKING:
    from collections.abc import Sequence

USER = "postgres"
START_TIMEOUT_S = 60
_SETTINGS = ("wal_level=logical", "fsync=off", f"listen_addresses={HOST}", "max_replication_slots=10")


class Postgres:
    """The server's process. Whatever guards `data` ends it; the database has a folder of its own."""

    def __init__(self, data: Path, port: int, settings: Sequence[str] = ()) -> None:
        """`settings`: more of them, such as `shared_buffers=4GB`."""
        self.port = port
        # Only its own user may read the database, and the folders of tests are those of another one.
        self._folder = Path(tempfile.mkdtemp(prefix="keylane-postgres-"))
        words = [word for each in (*_SETTINGS, *settings) for word in ("-c", each)]
        self._database = self._folder / "database"
        self.program = Program(
            "postgres",
            [*_as_user(), _find("postgres"), "-D", self._database, "-p", str(port), "-k", "", *words],
            data / "run" / "postgres.json",
            data / "logs" / "postgres.log",
        )

    def start(self) -> None:
        """Create the database, and wait until it accepts connections."""
        if os.getuid() == 0:
            os.chown(self._folder, pwd.getpwnam(USER).pw_uid, -1)
        command = [
            *_as_user(),
            _find("initdb"),
            "-D",
            self._database,
            "-U",
            USER,
            "--auth=trust",
            "-E",
            "UTF8",
        ]
        subprocess.run(command, check=True, capture_output=True, cwd="/")
        self.program.start()
        self.program.wait_until(self._answers, START_TIMEOUT_S)

    def run(self, statements: str) -> str:
        """Run statements one by one, each a transaction; return what they print, without headers."""
        command = [
            _find("psql"),
            "-h",
            HOST,
            "-p",
            str(self.port),
            "-U",
            USER,
            "-AtqX",
            "-v",
            "ON_ERROR_STOP=1",
        ]
        found = subprocess.run(
            command, input=statements, check=False, capture_output=True, text=True, cwd="/"
        )
        assert found.returncode == 0, found.stderr
        return found.stdout

    def close(self) -> None:
        """End the process, and remove the database."""
        self.program.stop()
        shutil.rmtree(self._folder)

    def _answers(self) -> bool:
        command = [_find("pg_isready"), "-h", HOST, "-p", str(self.port)]
        return subprocess.run(command, check=False, capture_output=True, cwd="/").returncode == 0


def _find(program: str) -> str:
    """Return the path of a program; Debian has those of the server outside of PATH."""
    found = [*sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}")), shutil.which(program)]
    if found[0] is None:
        pytest.fail(f"{program} is missing. Debian: sudo apt-get install --no-install-recommends postgresql")
    return str(found[0])


def _as_user() -> list[str]:
    """Return what runs a command as a user that the server accepts: it refuses root."""
    if os.getuid():
        return []
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"]
