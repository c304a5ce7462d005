"""The combinations of parameters that are checked: those of tools/lint, samconfig.toml and the docs."""

import itertools
import random
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keylane_build.stack.parameters import Refused, read_parameters
from keylane_build.stack.rule_functions import refusals

Combination = dict[str, str]

COMBINATIONS = "tools/lint/combinations.toml"
MAIN = "template.yaml"
PAGES = {"deploy": "docs/operate/deploy.md", "regions": "docs/operate/regions.md"}
PAGE_OF_SERVER = "docs/operate/fargate.md"
_COMMAND = re.compile(r"^\$ sam deploy((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
_COMMAND_OF_ONE = re.compile(
    r"^\$ (aws cloudformation deploy [^\n]*--template-file (\S+)(?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE
)
_OVERRIDE = re.compile(r"(?:^|\s)([A-Z]\w+)=(\S+)")
_PLACEHOLDER = re.compile(r"\b(subnet|sg|vpc)-\w+")
_NOW = re.compile(r"\$\(date [^)]*\)")
_TRIES = 40


def read_samples(root: Path, path: str = MAIN) -> Combination:
    """Return a value for each parameter of a template that others require."""
    found: Combination = _read_file(root)["sample"].get(path, {})
    return found


def read_combinations(root: Path) -> dict[str, Combination]:
    """Return all combinations by a name that says where they are from."""
    samples = read_samples(root)
    found = {name: _with_samples(each, samples) for name, each in _read_file(root)["combinations"].items()}
    config = tomllib.loads((root / "samconfig.toml").read_text(encoding="utf-8"))
    for environment, commands in config.items():
        if isinstance(commands, dict) and "deploy" in commands:
            given = commands["deploy"]["parameters"].get("parameter_overrides", [])
            found[f"samconfig-{environment}"] = _with_job(dict(each.split("=", 1) for each in given), samples)
    for name, path in PAGES.items():
        page = (root / path).read_text(encoding="utf-8")
        for number, command in enumerate(_COMMAND.findall(page), start=1):
            given = _overrides(command)
            # A command that goes on, "...", names the parameters alone that its section is about.
            found[f"{name}-page-{number}"] = _with_job(given, samples) if command.endswith("...") else given
    return found


def read_nested(root: Path) -> dict[str, tuple[str, Combination]]:
    """Return combinations of templates by themselves: the path of the template, and its parameters."""
    found = {}
    for name, each in _read_file(root)["nested"].items():
        path = each.pop("template")
        found[name] = path, _with_samples(each, read_samples(root, path))
    page = (root / PAGE_OF_SERVER).read_text(encoding="utf-8")
    for number, (command, path) in enumerate(_COMMAND_OF_ONE.findall(page), start=1):
        found[f"server-page-{number}"] = path, _overrides(command)
    return found


def generate_pairs(template: dict[str, Any], samples: Combination, seed: int = 13) -> Iterator[Combination]:
    """Yield combinations in which every two values of two parameters of the conditions meet.

    Pairs that the template's Rules refuse are left out.
    """
    choices = _choices(template, samples)
    waiting = {
        ((one, first), (other, second))
        for one, other in itertools.combinations(sorted(choices), 2)
        for first in choices[one]
        for second in choices[other]
    }
    companions = {name: value for name, value in samples.items() if name not in choices}
    companions = {name: value for name, value in companions.items() if name in template["Parameters"]}
    chosen = random.Random(seed)  # noqa: S311 (the same combinations each time)
    while waiting:
        pair = min(waiting)
        tries = [_complete(choices, companions | dict(pair), chosen) for _ in range(_TRIES)]
        accepted = [each for each in tries if not _is_refused(template, each)]
        waiting.discard(pair)
        if accepted:
            best = max(accepted, key=lambda each: len(waiting & _pairs_of(each, choices)))
            waiting -= _pairs_of(best, choices)
            yield best


def _read_file(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / COMBINATIONS).read_text(encoding="utf-8"))


def _with_samples(given: Combination, samples: Combination) -> Combination:
    return {key: samples[key] if value == "sample" else value for key, value in given.items()}


def _with_job(given: Combination, samples: Combination) -> Combination:
    """Return parameters with the job that new Kafka requires, and whose image only an account knows."""
    return {"Job": "FARGATE", "JobImage": samples["JobImage"]} | given


def _overrides(command: str) -> Combination:
    """Return the parameters in a command of a page."""
    found = _OVERRIDE.findall(_NOW.sub("1760000000", command.replace("\\\n", " ")))
    return {key: _with_ids(value) for key, value in found}


def _with_ids(value: str) -> str:
    """Return a value of the page with ids in place of its placeholders, such as subnet-1."""

    def valid(match: re.Match[str]) -> str:
        return f"{match[1]}-{sum(map(ord, match[0])):08x}"

    return _PLACEHOLDER.sub(valid, value)


def _choices(template: dict[str, Any], samples: Combination) -> dict[str, list[str]]:
    named = set(re.findall(r"'Ref': '(\w+)'", str(template["Conditions"])))
    constants = re.findall(r"'Fn::Equals': \[(?:{'Ref': ')(\w+)'}, '([^']*)'\]", str(template["Conditions"]))
    found = {}
    for name in named & template["Parameters"].keys():
        described = template["Parameters"][name]
        values = [str(described.get("Default", "")), *map(str, described.get("AllowedValues", ()))]
        values += [value for parameter, value in constants if parameter == name]
        values += [samples[name]] if name in samples else []
        values += ["5"] if described["Type"] == "Number" and "AllowedValues" not in described else []
        found[name] = list(dict.fromkeys(values))
    return found


def _complete(choices: dict[str, list[str]], given: Combination, chosen: random.Random) -> Combination:
    return {name: chosen.choice(values) for name, values in choices.items()} | given


def _pairs_of(given: Combination, choices: dict[str, list[str]]) -> set[Any]:
    return set(itertools.combinations([(name, given[name]) for name in sorted(choices)], 2))


def _is_refused(template: dict[str, Any], given: Combination) -> bool:
    try:
        return bool(refusals(template, read_parameters(template, given)))
    except Refused:
        return True
