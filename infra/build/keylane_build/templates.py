"""`python -m keylane_build.templates`: check the templates with cfn-lint, infra/lint and `sam validate`."""

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
# sam requires a region, although it calls no AWS service here.
_OFFLINE = {"AWS_DEFAULT_REGION": "us-east-1", "SAM_CLI_TELEMETRY": "0"}


def environment() -> dict[str, str]:
    """Return the variables for sam, without PYTHONPATH: sam must import its own packages only."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | _OFFLINE


def program(name: str) -> str:
    """Return the path of a program in SAM's virtual environment."""
    return str(tools_dir() / "sam" / "bin" / name)


def cfn_lint(templates: Sequence[str], *options: str) -> list[str]:
    """Return the command that checks templates with cfn-lint's rules and those of infra/lint."""
    return [program("cfn-lint"), "--append-rules", RULES, *options, "--", *templates]


def all_templates(root: Path) -> list[str]:
    """Return the project's templates, as paths relative to `root`."""
    return ["template.yaml", *sorted(str(each.relative_to(root)) for each in root.glob("infra/*.yaml"))]


def main() -> int:
    """Run the checks; return 1 if one of them fails."""
    root = project_root()
    commands = [
        cfn_lint(all_templates(root)),
        [program("sam"), "validate", "--lint", "--template", "template.yaml"],
    ]
    done = [subprocess.run(each, cwd=root, env=environment(), check=False).returncode for each in commands]
    return 1 if any(done) else 0


if __name__ == "__main__":
    sys.exit(main())
