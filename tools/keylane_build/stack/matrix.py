"""Every combination of parameters, deployed on paper: what is wrong with its stacks."""

import functools
import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keylane_build.stack import checks
from keylane_build.stack.combinations import (
    MAIN,
    generate_pairs,
    read_combinations,
    read_nested,
    read_samples,
)
from keylane_build.stack.loading import load_template, of_type
from keylane_build.stack.parameters import Refused, read_parameters
from keylane_build.stack.resolving import ResolvedStack, every_stack
from keylane_build.stack.rule_functions import refusals

DEPLOYED_ALONE = ("infra/server.yaml", "infra/deployer.yaml")
STACK_NAME = "keylane-" + "n" * 32
"""The longest name of a stack that docs/operate/deploy.md allows: names of resources are made of it."""
TRANSFORM = "tools/sam/transform.py"
Transformed = tuple[str, dict[str, str], dict[str, Any]]
"""A combination's name and parameters, and the main template."""


@dataclass
class Matrix:
    """What was found: sentences, which branches conditions took, resolved templates and policies."""

    problems: set[str] = field(default_factory=set)
    branches: dict[tuple[str, str], set[bool]] = field(default_factory=dict)
    templates: dict[str, str] = field(default_factory=dict)
    policies: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def add(self, combination: str, stack: ResolvedStack) -> None:
        """Resolve a stack with all its nested stacks, and check what comes out."""
        try:
            refused = refusals(stack.template, stack.parameters)
        except Refused as error:
            refused = [str(error)]
        if refused:
            self.problems |= {f"{combination}: CloudFormation refuses it: {each}" for each in refused}
            return
        for each in every_stack(stack):
            where = f"{combination}: {each.path}"
            self.problems |= {f"{where}: {problem}" for problem in each.problems}
            self.problems |= {f"{where}: {problem}" for problem in checks.check(each.resources)}
            for name in each.template.get("Conditions") or {}:
                self.branches.setdefault((each.path, name), set()).add(each.condition(name))
            # Equal templates are linted once, under the name of the first combination.
            self.templates.setdefault(render(each), f"{combination}.{each.path.replace('/', '-')}.json")
            self.policies += [(each.path, name, found) for name, found in checks.policies(each.resources)]

    def missing_branches(self) -> Iterator[str]:
        """Yield the conditions that no combination makes true, or none false."""
        for (path, name), taken in sorted(self.branches.items()):
            for value in {True, False} - taken:
                word = "true" if value else "false"
                yield f"{path}: {name} is {word} in no combination: add one to tools/lint/combinations.toml"


def render(stack: ResolvedStack) -> str:
    """Return a resolved stack as a template without parameters, conditions and functions."""
    resources = dict(stack.resources)
    for name, nested in of_type(resources, "AWS::CloudFormation::Stack"):
        # As `sam package` leaves it; cfn-lint would look for a file.
        properties = nested | {"TemplateURL": "https://s3.amazonaws.com/packaged/template.yaml"}
        resources[name] = resources[name] | {"Properties": properties}
    return json.dumps(
        {
            "AWSTemplateFormatVersion": "2010-09-09",
            "Resources": resources,
            "Outputs": {name: {"Value": value} for name, value in stack.outputs.items()},
        },
        indent=1,
    )


def deploy(root: Path, transformed: Iterable[Transformed]) -> Iterator[tuple[str, ResolvedStack]]:
    """Yield a stack for each combination, also for those of nested templates."""
    load = functools.cache(lambda path: load_template(root / path))
    for name, given, template in transformed:
        yield name, ResolvedStack(MAIN, STACK_NAME, template, given, load)
    for name, (path, given) in read_nested(root).items():
        stack = STACK_NAME if path in DEPLOYED_ALONE else f"{STACK_NAME}-nested"
        yield name, ResolvedStack(path, stack, load(path), given, load)


def deploy_alone(root: Path) -> Iterator[tuple[str, ResolvedStack]]:
    """Yield the generated combinations of templates that are deployed by themselves."""
    load = functools.cache(lambda path: load_template(root / path))
    for path in DEPLOYED_ALONE:
        template, samples = load(path), read_samples(root, path)
        for number, given in enumerate(generate_pairs(template, samples), start=1):
            name = f"pair-{number}-of-{Path(path).stem}"
            yield name, ResolvedStack(path, STACK_NAME, template, given, load)


def untransformed(root: Path, *, pairs: bool) -> Iterator[Transformed]:
    """Yield combinations with the main template as it is written; with `pairs`, the generated ones too."""
    template = load_template(root / MAIN)
    for name, given in read_combinations(root).items():
        yield name, given, template
    if pairs:
        for number, given in enumerate(generate_pairs(template, read_samples(root)), start=1):
            yield f"pair-{number}", given, template


def transform(root: Path, python: str) -> Iterator[Transformed]:
    """Yield the combinations with the main template after SAM's transform, made by the Python of SAM.

    Raises RuntimeError if SAM refuses it.
    """
    template = load_template(root / MAIN)
    combinations = read_combinations(root)
    expanded = expand(root, python, template, [_scalars(template, each) for each in combinations.values()])
    for (name, given), found in zip(combinations.items(), expanded, strict=True):
        if "error" in found:
            raise RuntimeError(f"{name}: SAM refuses the template: {found['error']}")
        yield name, given, found


def expand(
    root: Path, python: str, template: dict[str, Any], parameters: Sequence[dict[str, str]]
) -> list[dict[str, Any]]:
    """Return what SAM makes of a template for each of these parameters: see tools/sam/transform.py."""
    asked = [{"template": template, "parameters": each} for each in parameters]
    done = subprocess.run(
        [python, str(root / TRANSFORM)], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"SAM's transform failed:\n{done.stderr}")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def _scalars(template: dict[str, Any], given: dict[str, str]) -> dict[str, str]:
    try:
        read = read_parameters(template, given)
    except Refused:
        return {}  # it is reported when the stack is added
    return {name: ",".join(value) if isinstance(value, list) else value for name, value in read.items()}
