"""The API of template.yaml, generated from the table of routes, like docs/openapi.json.

`python -m keylane_build.gateway` writes it between two markers of the template. It has only what API Gateway
needs: paths, methods, authorization and the function to invoke. It has no schemas, because API Gateway reads
OpenAPI 3.0 only, and the functions validate requests with better errors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from keylane.model.routes import FUNCTIONS, ROUTES
from keylane_build.generated import replace_between
from keylane_build.openapi import operation_id
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from keylane.model.routes import Route

BEGIN, END = "# begin: made by `make openapi`", "# end: made by `make openapi`"
_INDENT = " " * 10
# Not AWS::NoValue, which SAM's local API does not resolve here.
_SECURITY = "security: !If [IsOpen, [], [{caller: []}]]"
_URI = "arn:${AWS::Partition}:apigateway:${AWS::Region}:lambda:path/2015-03-31/functions/%s/invocations"
_ARN = "${%sFunction.Arn}"
# SAM's local API finds the function in a single Sub only, by its name.
_ARN_OF_ALIAS = "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:${%sFunction}${Live}"


def render_paths() -> Iterator[str]:
    """Yield the lines below `paths:`, without indentation."""
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
                    yield from _render_operations(route)


def _render_operations(route: Route) -> Iterator[str]:
    for method in route.methods:
        yield f"  {method.lower()}:"
        yield f"    operationId: {operation_id(route, method)}"
        yield f"    {_SECURITY}"
        yield "    x-amazon-apigateway-integration:"
        yield "      type: aws_proxy"
        yield "      httpMethod: POST"
        yield f"      uri: {render_target(route.function)}"


def render_target(function: str) -> str:
    """Return the URI that invokes a function; with provisioned concurrency, that of query's alias."""
    name = function.capitalize()
    if function != "query":
        return f'!Sub "{_URI % (_ARN % name)}"'
    return f'!Sub ["{_URI % (_ARN_OF_ALIAS % name)}", {{Live: !If [IsProvisioned, ":live", ""]}}]'


def insert_paths(template: str) -> str:
    """Return the template with the routes of the code. Raises ValueError if it lacks the markers."""
    return replace_between(template, BEGIN, _INDENT + END, (_INDENT + line for line in render_paths()))


def write(path: Path) -> None:
    """Update the routes in the template `path`."""
    path.write_text(insert_paths(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(project_root() / "template.yaml")
