"""Lint of the templates: cfn-lint, our rules, and `sam validate` (`python -m keylane_build.templates`)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from keylane_local.tools import project_root, tools_dir

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RULES = "infra/lint"
# sam reads a region and credentials before it looks at anything; it asks nobody here.
_OFFLINE = {"AWS_DEFAULT_REGION": "us-east-1", "SAM_CLI_TELEMETRY": "0"}


def environment() -> dict[str, str]:
    """The variables for sam: a PYTHONPATH of ours would lead it to packages that are not its own."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | _OFFLINE


def program(name: str) -> str:
    """The path of a program in SAM's virtual environment."""
    return str(tools_dir() / "sam" / "bin" / name)


def cfn_lint(templates: Sequence[str], *options: str) -> list[str]:
    """The command that holds templates against cfn-lint's rules and ours."""
    return [program("cfn-lint"), "--append-rules", RULES, *options, "--", *templates]


def all_templates(root: Path) -> list[str]:
    """The project's templates, as paths below `root`."""
    return ["template.yaml", *sorted(str(each.relative_to(root)) for each in root.glob("infra/*.yaml"))]


def main() -> int:
    """Lint; return 1 where something is found."""
    root = project_root()
    commands = [
        cfn_lint(all_templates(root)),
        [program("sam"), "validate", "--lint", "--template", "template.yaml"],
    ]
    done = [subprocess.run(each, cwd=root, env=environment(), check=False).returncode for each in commands]
    return 1 if any(done) else 0


if __name__ == "__main__":
    sys.exit(main())
