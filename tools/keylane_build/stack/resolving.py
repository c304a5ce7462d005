"""A stack and its nested stacks as CloudFormation would create them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from keylane_build.stack.identities import PSEUDO_PARAMETERS, SUFFIX, Identity, identify
from keylane_build.stack.intrinsics import NO_VALUE, Unresolvable, as_text, resolve
from keylane_build.stack.parameters import Refused, read_parameters

Load = Callable[[str], dict[str, Any]]

_STACK = "AWS::CloudFormation::Stack"


@dataclass
class ResolvedStack:
    """A stack with its parameters. `load` returns a nested stack's template by its path.

    `problems` lists what CloudFormation would refuse, once `resources` and `outputs` were read.
    """

    path: str
    name: str
    template: dict[str, Any]
    given: dict[str, Any]
    load: Load
    problems: list[str] = field(default_factory=list)
    children: "dict[str, ResolvedStack]" = field(default_factory=dict)
    conditions: dict[str, bool] = field(default_factory=dict)
    _identities: dict[str, Identity] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)

    @cached_property
    def parameters(self) -> dict[str, str | list[str]]:
        """All parameters. Raises Refused."""
        return read_parameters(self.template, self.given)

    @cached_property
    def resources(self) -> dict[str, dict[str, Any]]:
        """The resources that exist, without functions."""
        return {
            name: self._resolve_resource(name, resource)
            for name, resource in self.template["Resources"].items()
            if self.exists(resource)
        }

    @cached_property
    def outputs(self) -> dict[str, Any]:
        """The values of the outputs that exist."""
        return {
            name: self._resolve(output["Value"], f"Outputs.{name}")
            for name, output in (self.template.get("Outputs") or {}).items()
            if self.exists(output)
        }

    def exists(self, element: dict[str, Any]) -> bool:
        """Return whether the condition of a resource or an output holds."""
        return "Condition" not in element or self.condition(element["Condition"])

    def condition(self, name: str) -> bool:
        """Return whether a condition of the template holds."""
        if name not in self.conditions:
            described = self.template.get("Conditions") or {}
            if name not in described:
                raise Unresolvable(f"there is no condition {name}")
            self.conditions[name] = bool(resolve(described[name], self))
        return self.conditions[name]

    def mapping(self, name: str) -> dict[str, dict[str, Any]]:
        """Return a mapping of the template."""
        found: dict[str, dict[str, Any]] = (self.template.get("Mappings") or {}).get(name, {})
        return found

    def reference(self, name: str) -> Any:
        """Return the value of Ref."""
        if name in {"AWS::StackName", "AWS::StackId"}:
            return self.name
        if name in PSEUDO_PARAMETERS:
            return PSEUDO_PARAMETERS[name]
        if name in self.parameters:
            return self.parameters[name]
        return self._identity(name).reference()

    def attribute(self, name: str, attribute: str) -> Any:
        """Return the value of GetAtt; an output of a nested stack is resolved in that stack."""
        identity = self._identity(name)
        if identity.kind != _STACK:
            return identity.attribute(attribute)
        output = attribute.removeprefix("Outputs.")
        child = self.children[name]
        if output not in child.outputs:
            raise Unresolvable(f"the nested stack {name} has no output {output} here")
        return child.outputs[output]

    def nest(self, name: str) -> None:
        """Make a nested stack known, though nothing refers to it."""
        try:
            self._identity(name)
        except Unresolvable as error:
            self.problems.append(f"{name}: {error}")

    def _identity(self, name: str) -> Identity:
        if name not in self._identities:
            resource = self._find(name)
            if resource is None:
                raise Unresolvable(f"there is no resource or parameter {name}")
            if not self.exists(resource):
                raise Unresolvable(f"{name} is not created: its condition {resource['Condition']} is false")
            if name in self._open:
                raise Unresolvable(f"{name} depends on itself")
            self._open.append(name)
            properties = self._properties(resource)
            self._open.pop()
            if resource["Type"] == _STACK:
                self._nest(name, properties)
            self._identities[name] = identify(self.name, name, resource["Type"], properties)
        return self._identities[name]

    def _find(self, name: str) -> dict[str, Any] | None:
        """Return a resource, or that of SAM's from which it would make `name`, such as an alias; or None."""
        resources: dict[str, dict[str, Any]] = self.template["Resources"]
        if name in resources:
            return resources[name]
        for each, resource in resources.items():
            if resource["Type"].startswith("AWS::Serverless::") and name.startswith(each):
                return resource
        return None

    def _nest(self, name: str, properties: dict[str, Any]) -> None:
        given = {key: as_text(value) for key, value in (properties.get("Parameters") or {}).items()}
        path = properties["TemplateURL"]
        child = ResolvedStack(path, f"{self.name}-{name}-{SUFFIX}", self.load(path), given, self.load)
        try:
            child.parameters  # noqa: B018 (reads them)
        except Refused as error:
            raise Unresolvable(f"the nested stack {name}: {error}") from None
        self.children[name] = child

    def _properties(self, resource: dict[str, Any]) -> dict[str, Any]:
        """Return what a name is made of: of a nested stack all properties, of others the strings."""
        properties = resource.get("Properties") or {}
        if resource["Type"] == _STACK:
            return {key: resolve(value, self) for key, value in properties.items()}
        return {key: value for key, each in properties.items() if (value := self._scalar(each)) is not None}

    def _scalar(self, value: Any) -> Any:
        if isinstance(value, str | int | bool):
            return value
        if isinstance(value, dict) and set(value) <= {"Ref", "Fn::Sub", "Fn::If"}:
            found = resolve(value, self)
            return found if isinstance(found, str) else None
        return None

    def _resolve_resource(self, name: str, resource: dict[str, Any]) -> dict[str, Any]:
        kept = {key: each for key, each in resource.items() if key not in {"Condition", "DependsOn"}}
        for key in ("Properties", "UpdatePolicy", "Metadata"):
            if key in kept:
                values = {one: self._resolve(value, f"{name}.{one}") for one, value in kept[key].items()}
                kept[key] = {one: value for one, value in values.items() if value is not NO_VALUE}
        return kept

    def _resolve(self, value: Any, where: str) -> Any:
        try:
            return resolve(value, self)
        except Unresolvable as error:
            self.problems.append(f"{where}: {error}")
            return f"unresolved-{where}"


def every_stack(stack: ResolvedStack) -> Iterator[ResolvedStack]:
    """Yield a stack and its nested stacks, all of them resolved."""
    stack.resources  # noqa: B018 (resolves them)
    for name, resource in stack.resources.items():
        if resource["Type"] == _STACK:
            stack.nest(name)
    stack.outputs  # noqa: B018 (resolves them)
    yield stack
    for child in stack.children.values():
        yield from every_stack(child)
