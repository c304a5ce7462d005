"""Checks of `aws ...` commands against botocore's models, from which the AWS CLI makes its own. Pure."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import TYPE_CHECKING, Any

import jmespath
from botocore import xform_name
from botocore.exceptions import UnknownServiceError
from botocore.session import Session
from jmespath.exceptions import ParseError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from botocore.model import OperationModel, ServiceModel, Shape

GLOBAL_OPTIONS = frozenset({"query", "output", "region", "profile"})
CLI_ONLY = {
    ("cloudformation", "deploy"): {"stack-name", "template-file", "capabilities", "parameter-overrides"},
    ("ecr", "get-login-password"): set(),
    ("logs", "tail"): {"since", "follow"},
    ("s3", "cp"): set(),
    ("s3", "rb"): {"force"},
}
"""Commands that the CLI adds to those of the models, with the options that the documents use."""

_IN_SCRIPT = re.compile(r"""(?:^|[$]\(|[|;&]|\bthen)\s*(aws (?:"[^"]*"|'[^']*'|[^|;&)"'])*)""")
_CHAINS = frozenset({"subexpression", "index_expression", "pipe", "flatten"})
_PROJECTIONS = frozenset({"projection", "filter_projection"})
_SESSION = Session()
_SPAN = re.compile(r"`(aws [a-z][^`]*)`")


def spans(line: str) -> Iterator[list[str]]:
    """Give the commands in the code spans of a line of prose."""
    for text in _SPAN.findall(line):
        yield shlex.split(text)


def script_commands(script: str) -> Iterator[list[str]]:
    """Give the commands of a shell script, those of substitutions too."""
    for line in script.replace("\\\n", " ").splitlines():
        for text in _IN_SCRIPT.findall(line):
            yield shlex.split(text)


def faults(words: Sequence[str]) -> list[str]:
    """Say what the CLI would refuse of a command, and which names of its --query no answer has."""
    if len(words) < 3:
        return ["a command has a service and an operation"]
    _, service, operation, *rest = words
    given = {word[2:].partition("=")[0] for word in rest if word.startswith("--")} - GLOBAL_OPTIONS
    if (service, operation) in CLI_ONLY:
        return [f"--{each} is not known" for each in sorted(given - CLI_ONLY[service, operation])]
    model = _service(service)
    if model is None:
        return [f"there is no service {service}"]
    if operation == "wait":
        return _waiter_faults(service, rest)
    found = _operations(model).get(operation)
    if found is None:
        return [f"{service} has no operation {operation}"]
    return [*_option_faults(found, given), *_query_faults(found, rest)]


def _option_faults(operation: OperationModel, given: set[str]) -> Iterator[str]:
    members = operation.input_shape.members if operation.input_shape else {}
    options = {xform_name(name, "-"): shape for name, shape in members.items()}
    flags = {f"no-{name}" for name, shape in options.items() if shape.type_name == "boolean"}
    for each in sorted(given - options.keys() - flags):
        yield f"{operation.name} has no --{each}"
    required = operation.input_shape.required_members if operation.input_shape else []
    for each in required:
        if xform_name(each, "-") not in given:
            yield f"{operation.name} requires --{xform_name(each, '-')}"


def _query_faults(operation: OperationModel, rest: Sequence[str]) -> Iterator[str]:
    if "--query" not in rest:
        return
    try:
        parsed = jmespath.compile(rest[rest.index("--query") + 1]).parsed
    except ParseError as error:
        yield f"--query: {error}"
        return
    missing: list[str] = []
    _walk(parsed, operation.output_shape, missing)
    yield from (f"the answer of {operation.name} has no {each}" for each in missing)


def _walk(node: dict[str, Any], shape: Shape | None, missing: list[str]) -> Shape | None:
    """Return the shape of what an expression selects, None where it is not known."""
    kind, children = node["type"], [*node.get("children", [])]
    if kind == "field":
        return _field(node["value"], shape, missing)
    if kind in ("identity", "current", "slice"):
        return shape
    if kind == "index":
        return _element(shape)
    if kind in _CHAINS:
        for child in children:
            shape = _walk(child, shape, missing)
        return shape
    # Of a projection the first part selects the list; all parts of the others are about the same shape.
    if kind in _PROJECTIONS:
        shape = _element(_walk(children.pop(0), shape, missing))
    for child in children:
        _walk(child, shape, missing)
    return None


def _field(name: str, shape: Shape | None, missing: list[str]) -> Shape | None:
    if shape is None or shape.type_name != "structure":
        return None
    if name not in shape.members:
        missing.append(name)
    return shape.members.get(name)


def _element(shape: Shape | None) -> Shape | None:
    return shape.member if shape is not None and shape.type_name == "list" else None


def _waiter_faults(service: str, rest: Sequence[str]) -> list[str]:
    names = {xform_name(each, "-") for each in _SESSION.get_waiter_model(service).waiter_names}
    return [] if rest and rest[0] in names else [f"{service} cannot wait for {rest[:1]}"]


@cache
def _service(name: str) -> ServiceModel | None:
    try:
        return _SESSION.get_service_model(name)
    except UnknownServiceError:
        return None


@cache
def _operations(model: ServiceModel) -> dict[str, OperationModel]:
    return {xform_name(name, "-"): model.operation_model(name) for name in model.operation_names}
