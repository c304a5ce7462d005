"""The values of intrinsic functions, in a stack whose parameters are known."""

import ipaddress
import re
from collections.abc import Callable
from typing import Any, Protocol

_VARIABLE = re.compile(r"\$\{(!?)([^}]+)\}")
AVAILABILITY_ZONES = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]


class _NoValue:
    """AWS::NoValue: the property, or the item of a list, is left out."""


NO_VALUE = _NoValue()


class Unresolvable(LookupError):
    """A function's arguments do not exist, or are not what it takes; the text is a sentence."""


class TemplateScope(Protocol):
    """What functions refer to. Its methods raise Unresolvable for what does not exist."""

    def reference(self, name: str) -> Any:
        """Return the value of Ref."""

    def attribute(self, name: str, attribute: str) -> Any:
        """Return the value of GetAtt."""

    def condition(self, name: str) -> bool:
        """Return whether a condition of the template holds."""

    def mapping(self, name: str) -> dict[str, dict[str, Any]]:
        """Return a mapping of the template."""


def resolve(node: Any, scope: TemplateScope) -> Any:
    """Return a value of the template without functions; NO_VALUE if it is left out. Raises Unresolvable."""
    if isinstance(node, list):
        found = [resolve(each, scope) for each in node]
        return [each for each in found if each is not NO_VALUE]
    if not isinstance(node, dict):
        return node
    if len(node) == 1:
        [(name, argument)] = node.items()
        if name == "Ref":
            return NO_VALUE if argument == "AWS::NoValue" else scope.reference(argument)
        # A policy's Condition is an object.
        if name in _LAZY and not (name == "Condition" and isinstance(argument, dict)):
            return _LAZY[name](argument, scope)
        if name in _PLAIN:
            return _PLAIN[name](resolve(argument, scope))
        if name.startswith("Fn::"):
            raise Unresolvable(f"{name} is not a function that these checks know")
    resolved = {name: resolve(value, scope) for name, value in node.items()}
    return {name: value for name, value in resolved.items() if value is not NO_VALUE}


def as_text(value: Any) -> str:
    """Return a scalar as CloudFormation renders it in a string."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _if(argument: Any, scope: TemplateScope) -> Any:
    name, then, otherwise = argument
    return resolve(then if scope.condition(name) else otherwise, scope)


def _get_att(argument: Any, scope: TemplateScope) -> Any:
    name, attribute = argument if isinstance(argument, list) else argument.split(".", 1)
    return scope.attribute(name, attribute)


def _sub(argument: Any, scope: TemplateScope) -> str:
    text, own = argument if isinstance(argument, list) else (argument, {})

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return f"${{{match[2]}}}"
        name = match[2].strip()
        if name in own:
            return as_text(resolve(own[name], scope))
        resource, dot, attribute = name.partition(".")
        found = scope.attribute(resource, attribute) if dot else scope.reference(name)
        if isinstance(found, list):
            raise Unresolvable(f"Fn::Sub cannot insert the list {name}")
        return as_text(found)

    return _VARIABLE.sub(value, text)


def _find_in_map(argument: Any, scope: TemplateScope) -> Any:
    name, first, second = (resolve(each, scope) for each in argument)
    try:
        return scope.mapping(name)[as_text(first)][as_text(second)]
    except KeyError as error:
        raise Unresolvable(f"the mapping {name} has no {error}") from None


def _join(argument: Any) -> str:
    separator, parts = argument
    if not isinstance(parts, list):
        raise Unresolvable(f"Fn::Join takes a list, not {parts!r}")
    return str(separator).join(as_text(each) for each in parts)


def _select(argument: Any) -> Any:
    index, parts = argument
    if not 0 <= int(index) < len(parts):
        raise Unresolvable(f"Fn::Select has no item {index} in {parts!r}")
    return parts[int(index)]


def _split(argument: Any) -> list[str]:
    separator, text = argument
    if not isinstance(text, str):
        raise Unresolvable(f"Fn::Split takes a string, not {text!r}")
    return text.split(separator)


def _cidr(argument: Any) -> list[str]:
    block, count, bits = (*argument, 8)[:3]
    subnets = ipaddress.ip_network(block).subnets(new_prefix=32 - int(bits))
    return [str(next(subnets)) for _ in range(int(count))]


_LAZY: dict[str, Callable[[Any, TemplateScope], Any]] = {
    "Condition": lambda name, scope: scope.condition(name),
    "Fn::FindInMap": _find_in_map,
    "Fn::GetAtt": _get_att,
    "Fn::GetAZs": lambda _argument, _scope: AVAILABILITY_ZONES,
    "Fn::If": _if,
    "Fn::Sub": _sub,
}
"""Functions of the template's names: they resolve only what they use."""
_PLAIN: dict[str, Callable[[Any], Any]] = {
    "Fn::And": all,
    "Fn::Base64": str,
    "Fn::Cidr": _cidr,
    "Fn::Equals": lambda pair: as_text(pair[0]) == as_text(pair[1]),
    "Fn::Join": _join,
    "Fn::Not": lambda one: not one[0],
    "Fn::Or": any,
    "Fn::Select": _select,
    "Fn::Split": _split,
}
"""Functions of values."""
