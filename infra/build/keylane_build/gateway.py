"""The API of template.yaml, made from the functions' routes as docs/openapi.json is.

`python -m keylane_build.gateway` writes it between the template's two marks. It says what API Gateway has to
know, no more: paths, methods, who is let in, and which function answers. Schemas are left out: API Gateway
reads OpenAPI 3.0 alone, and the functions check requests with better errors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from keylane.model.routes import FUNCTIONS, ROUTES
from keylane_build.openapi import operation_id
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from keylane.model.routes import Route

BEGIN, END = "# begin: made by `make openapi`", "# end: made by `make openapi`"
_INDENT = " " * 10
_SECURITY = "security: !If [IsOpen, !Ref AWS::NoValue, [{caller: []}]]"
_URI = "arn:${AWS::Partition}:apigateway:${AWS::Region}:lambda:path/2015-03-31/functions/${%s}/invocations"


def lines() -> Iterator[str]:
    """Yield the template's lines, those of `paths:`."""
    for path in sorted({route.path for route in ROUTES}):
        yield f"{path}:"
        if names := re.findall(r"{(\w+)}", path):
            described = ", ".join(
                f"{{name: {name}, in: path, required: true, schema: {{type: string}}}}" for name in names
            )
            yield f"  parameters: [{described}]"
        for function in FUNCTIONS:
            for route in ROUTES:
                if (route.path, route.function) == (path, function):
                    yield from _operations(route)


def _operations(route: Route) -> Iterator[str]:
    for method in route.methods:
        yield f"  {method.lower()}:"
        yield f"    operationId: {operation_id(route, method)}"
        yield f"    {_SECURITY}"
        yield "    x-amazon-apigateway-integration:"
        yield "      type: aws_proxy"
        yield "      httpMethod: POST"
        yield f"      uri: {target_of(route.function)}"


def target_of(function: str) -> str:
    """The address of a function's invocations; query's is its alias where some of it is kept warm."""
    arn = f"{function.capitalize()}Function.Arn"
    plain = f'!Sub "{_URI % arn}"'
    if function != "query":
        return plain
    return f'!If [IsProvisioned, !Sub "{_URI % "QueryFunctionAliaslive"}", {plain}]'


def inserted(template: str) -> str:
    """The template with the code's routes. Raises ValueError where it lacks the marks."""
    before, begun, rest = template.partition(f"{BEGIN}\n")
    _, ended, after = rest.partition(f"{_INDENT}{END}\n")
    if not begun or not ended:
        raise ValueError(f"the template has no lines {BEGIN!r} and {END!r}")
    made = "".join(f"{_INDENT}{line}\n" for line in lines())
    return f"{before}{begun}{made}{_INDENT}{END}\n{after}"


def write(path: Path) -> None:
    """Put the routes into the template."""
    path.write_text(inserted(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(project_root() / "template.yaml")
