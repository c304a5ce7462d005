"""The Rules of a template: which assertions refuse given parameters."""

from collections.abc import Callable
from typing import Any

Parameters = dict[str, str | list[str]]


def _contains(listed: list[str], text: str) -> bool:
    if not isinstance(listed, list):
        raise TypeError(f"Fn::Contains takes a list of strings, not {listed!r}")
    return text in listed


_FUNCTIONS: dict[str, Callable[..., bool]] = {
    "Fn::And": lambda *every: all(every),
    "Fn::Contains": _contains,
    "Fn::EachMemberEquals": lambda listed, text: all(each == text for each in listed),
    "Fn::EachMemberIn": lambda listed, other: all(each in other for each in listed),
    "Fn::Equals": lambda one, other: str(one) == str(other),
    "Fn::Not": lambda one: not one,
    "Fn::Or": lambda *some: any(some),
}


def evaluate(node: Any, parameters: Parameters) -> Any:
    """Return the value of a rule function. Raises KeyError if it is none."""
    if isinstance(node, list):
        return [evaluate(each, parameters) for each in node]
    if not isinstance(node, dict):
        return node
    [(name, arguments)] = node.items()
    if name == "Ref":
        return parameters[arguments]
    return _FUNCTIONS[name](*evaluate(arguments, parameters))


def refusals(template: dict[str, Any], parameters: Parameters) -> list[str]:
    """Return the sentences of the assertions that fail."""
    return [
        assertion["AssertDescription"]
        for rule in (template.get("Rules") or {}).values()
        if "RuleCondition" not in rule or evaluate(rule["RuleCondition"], parameters)
        for assertion in rule["Assertions"]
        if not evaluate(assertion["Assert"], parameters)
    ]
