"""`python -m keylane_build.templates`: all checks of the templates that need no account.

1. cfn-lint, which applies SAM's transform, and the rules of tools/lint, on the templates as they are written.
2. Each combination of parameters of tools/lint/combinations.toml, samconfig.toml and the pages on deploying,
   after SAM's transform, with values for all conditions and functions: Rules, references, limits, cfn-lint.
3. Generated combinations, in which every two values of two parameters meet.
4. checkov, and parliament on all policies: what they find is fixed, or accepted in tools/lint/accepted.toml.
5. The Helm chart of infra/kubernetes against the schemas of the oldest and of a new version of Kubernetes.

Most of the time is that of other programs, which run side by side.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from keylane_build import chart
from keylane_build.stack import accepted, checks, matrix, scanners
from keylane_build.stack.loading import load_template
from keylane_local.tools import project_root, tools_dir

RULES = "tools/lint"
SIDE_BY_SIDE = 2
"""How many checks run at once, and how many programs of the largest one."""
# sam requires a region, although it calls no AWS service here.
_OFFLINE = {"AWS_DEFAULT_REGION": "us-east-1", "SAM_CLI_TELEMETRY": "0"}


def environment() -> dict[str, str]:
    """Return the variables for sam, without PYTHONPATH: sam must import its own packages only."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | _OFFLINE


def program(name: str) -> str:
    """Return the path of a program in SAM's virtual environment."""
    return str(tools_dir() / "sam" / "bin" / name)


def cfn_lint(templates: Sequence[str], *options: str) -> list[str]:
    """Return the command that checks templates with cfn-lint's rules and those of tools/lint."""
    return [program("cfn-lint"), "--append-rules", RULES, *options, "--", *templates]


def all_templates(root: Path) -> list[str]:
    """Return the project's templates, as paths relative to `root`."""
    return ["template.yaml", *sorted(str(each.relative_to(root)) for each in root.glob("infra/*.yaml"))]


def check_as_written(root: Path) -> Iterator[str]:
    """Yield what cfn-lint and our rules find in the templates as they are written."""
    done = subprocess.run(
        cfn_lint(all_templates(root)),
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        yield done.stdout + done.stderr
    for path in all_templates(root):
        # Unlike those of resources, outputs and bytes, cfn-lint does not know this limit.
        count = len(load_template(root / path).get("Parameters") or {})
        if count > checks.MAX_PARAMETERS:
            yield f"{path}: {count} parameters; CloudFormation takes {checks.MAX_PARAMETERS}"


def check_combinations(root: Path) -> Iterator[str]:
    """Yield what is wrong with the stacks that the combinations of parameters make."""
    deployed = matrix.Matrix()
    for name, stack in matrix.deploy(root, matrix.transform(root, program("python"))):
        deployed.add(name, stack)
    yield from sorted(deployed.problems)
    yield from deployed.missing_branches()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(SIDE_BY_SIDE) as programs:
        for text, name in deployed.templates.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        names = sorted(deployed.templates.values())
        linted = [programs.submit(lint_resolved, Path(folder), names[part::2]) for part in range(2)]
        weak = programs.submit(scanners.run_checkov, root, all_templates(root))
        refused = programs.submit(scanners.run_parliament, deployed.policies)
        for each in linted:
            yield from each.result()
        yield from accepted.compare(refused.result() | weak.result(), accepted.read_accepted(root))


def lint_resolved(folder: Path, names: Sequence[str]) -> list[str]:
    """Return the errors that cfn-lint finds in resolved templates. Warnings are for templates as written."""
    command = [program("cfn-lint"), "--ignore-checks", "W", "I", "--regions", "eu-central-1"]
    command += ["--format", "parseable", "--", *names]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode and not done.stdout:
        return [done.stderr]
    return done.stdout.splitlines()


def check_pairs(root: Path) -> Iterator[str]:
    """Yield what is wrong with the stacks of generated combinations."""
    deployed = matrix.Matrix()
    for name, stack in matrix.deploy(root, matrix.untransformed(root, pairs=True)):
        deployed.add(name, stack)
    for name, stack in matrix.deploy_alone(root):
        deployed.add(name, stack)
    yield from sorted(deployed.problems)


CHECKS: dict[str, Callable[[Path], Iterator[str]]] = {
    "the templates as written": check_as_written,
    "combinations of parameters, checkov, parliament": check_combinations,
    "every two values of two parameters": check_pairs,
    "the chart for Kubernetes": chart.check,
}


def run(title: str) -> tuple[list[str], float]:
    """Return what a check finds, and the seconds that it took."""
    begun = time.monotonic()
    return list(CHECKS[title](project_root())), time.monotonic() - begun


def main() -> int:
    """Run the checks; return 1 if one of them fails."""
    failed = 0
    with ThreadPoolExecutor(SIDE_BY_SIDE) as checks_at_once:
        for title, (problems, seconds) in zip(CHECKS, checks_at_once.map(run, CHECKS), strict=True):
            failed += len(problems)
            print(*problems, sep="\n", end="\n" if problems else "")
            print(f"{title}: {len(problems) or 'no'} problems, {seconds:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
