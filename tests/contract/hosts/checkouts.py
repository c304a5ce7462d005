"""A checkout of the project, and what has to be known of it to run its two hosts.

This is all that depends on where a checkout has its server, and on what the server's options are called.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPTIONS = "STANDING_SERVER_OPTIONS"
SERVERS = ("server/keylane_server", "infra/serve/keylane_serve")
"""Where the server's package is: today, and before it had a folder of its own."""
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder with the project's files."""

    root: Path

    @classmethod
    def at(cls, path: Path) -> Checkout:
        return cls(path.resolve())

    @property
    def layer(self) -> Path:
        return self.root / "layers" / "keylane" / "python"

    @property
    def server(self) -> Path:
        """The package of the server."""
        found = [self.root / each for each in SERVERS if (self.root / each).is_dir()]
        if not found:
            raise FileNotFoundError(f"{self.root} has none of {', '.join(SERVERS)}")
        return found[0]

    def environment(self, variables: dict[str, str], *folders: Path) -> dict[str, str]:
        """The environment of a process with these settings, which imports this checkout's layer."""
        own = {name: os.environ[name] for name in KEPT if name in os.environ}
        paths = os.pathsep.join(map(str, (self.layer, *folders)))
        # The first of several unknown fields is named: which one is the hash's choice.
        return own | {"PYTHONPATH": paths, "PYTHONHASHSEED": "0"} | variables

    def function_command(self, function: str) -> list[str]:
        runner = Path(__file__).with_name("lambda_process.py")
        return [sys.executable, str(runner), str(self.root), function]

    def function_environment(self, function: str, variables: dict[str, str]) -> dict[str, str]:
        own = {"LAMBDA_TASK_ROOT": str(self.root / "functions" / function)}
        return self.environment(own | variables)

    def server_command(self) -> list[str]:
        return [sys.executable, "-m", f"{self.server.name}.server"]

    def server_environment(
        self, port: int, variables: dict[str, str], *, requires_tokens: bool
    ) -> dict[str, str]:
        """The environment of a server with one process; options that it does not have are left out."""
        known = _fields_of(self.server / "options.py", "ServerOptions")
        options: dict[str, Any] = {
            "functions": str(self.root / "functions"),
            "host": "0.0.0.0",  # noqa: S104 (a server of one machine answers to no domain, see `keylane_server.sites`)
            "port": port,
            "workers": 1,
            "authorization": "tokens" if requires_tokens else "none",
            "drain_s": 5,
            "console": str(self.root / "clients" / "console"),
            "limits": {},
        }
        given = {name: value for name, value in options.items() if name in known}
        return self.environment({OPTIONS: json.dumps(given)} | variables, self.server.parent)


def _fields_of(module: Path, name: str) -> set[str]:
    """The fields of a dataclass, without an import of its module."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    found = next((each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name), None)
    if found is None:
        raise LookupError(f"{module} has no {name}: what are the server's options called now?")
    return {
        each.target.id
        for each in found.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
