"""The parameters of a stack: defaults, and what CloudFormation refuses before it makes anything."""

import re
from typing import Any


class Refused(Exception):
    """CloudFormation would refuse the parameters; the text says why."""


def read_parameters(template: dict[str, Any], given: dict[str, Any]) -> dict[str, str | list[str]]:
    """Return all parameters as text, lists as lists of texts. Raises Refused if one is not allowed."""
    described = template.get("Parameters") or {}
    if unknown := sorted(given.keys() - described.keys()):
        raise Refused(f"there are no parameters {', '.join(unknown)}")
    return {name: _read(name, each, given) for name, each in described.items()}


def _read(name: str, described: dict[str, Any], given: dict[str, Any]) -> str | list[str]:
    if name not in given and "Default" not in described:
        raise Refused(f"the parameter {name} has no value")
    text = str(given.get(name, described.get("Default")))
    if described["Type"] == "CommaDelimitedList" or described["Type"].startswith("List<"):
        return [each.strip() for each in text.split(",")]
    allowed = described.get("AllowedValues")
    if allowed is not None and text not in map(str, allowed):
        raise Refused(f"{name} is {text}, not one of {', '.join(map(str, allowed))}")
    pattern = described.get("AllowedPattern")
    if pattern is not None and not re.fullmatch(pattern, text):
        raise Refused(f"{name} is {text}, which does not match {pattern}")
    if described["Type"] == "Number":
        _check_number(name, described, text)
    return text


def _check_number(name: str, described: dict[str, Any], text: str) -> None:
    try:
        number = float(text)
    except ValueError:
        raise Refused(f"{name} is {text}, not a number") from None
    least, most = described.get("MinValue"), described.get("MaxValue")
    if (least is not None and number < least) or (most is not None and number > most):
        raise Refused(f"{name} is {text}, not from {least} to {most}")
