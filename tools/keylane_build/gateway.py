"""The API of template.yaml, generated from the table of routes, like docs/openapi.json.

`python -m keylane_build.gateway` writes it between two markers of the template. It has only what API Gateway
needs: paths, methods, authorization and the function to invoke. It has no schemas, because API Gateway reads
OpenAPI 3.0 only, and the functions validate requests with better errors.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from keylane.model.routes import FUNCTIONS, PRODUCE, ROUTES, Route
from keylane_build.generated import replace_between
from keylane_build.openapi import operation_id
from keylane_local.tools import project_root

BEGIN, END = "# begin: made by `make generate`", "# end: made by `make generate`"
_THROTTLES = "throttles, made by `make generate`"
_BEGIN_THROTTLES, _END_THROTTLES = f"# begin: {_THROTTLES}", f"# end: {_THROTTLES}"
_INDENT, _INDENT_OF_THROTTLES = " " * 10, " " * 8
# Not AWS::NoValue, which SAM's local API does not resolve here.
_SECURITY = 'security: !If [IsOpen, [], [{caller: !If [HasScopes, !Split [",", !Ref UserPoolScopes], []]}]]'
_URI = "arn:${AWS::Partition}:apigateway:${AWS::Region}:lambda:path/2015-03-31/functions/%s/invocations"
# SAM's local API finds the function in a single Sub only, by its name.
_ARN = "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:${%sFunction}${Live}"


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
        yield from _render_preflight()


def _render_operations(route: Route) -> Iterator[str]:
    for method in route.methods:
        yield f"  {method.lower()}:"
        yield f"    operationId: {operation_id(route, method)}"
        yield f"    {_SECURITY}"
        yield "    x-amazon-apigateway-integration:"
        yield "      type: aws_proxy"
        yield "      httpMethod: POST"
        yield f"      uri: {render_target(route.function)}"


def _render_preflight() -> Iterator[str]:
    """Yield the path's answer to a browser that asks whether a page of another origin may call it."""
    headers = {
        "Allow-Origin": """!Sub "'${CorsOrigin}'\"""",
        "Allow-Methods": """"'GET,HEAD,PUT,POST,DELETE'\"""",
        # The star does not include Authorization.
        "Allow-Headers": """"'Authorization,*'\"""",
        "Max-Age": """"'7200'\"""",
    }
    described = ", ".join(f"Access-Control-{name}: {{schema: {{type: string}}}}" for name in headers)
    answers = ", ".join(
        f"method.response.header.Access-Control-{name}: {value}" for name, value in headers.items()
    )
    yield "  options: !If"
    yield "    - HasCors"
    yield "    - security: []"
    yield f'      responses: {{"204": {{description: preflight, headers: {{{described}}}}}}}'
    yield "      x-amazon-apigateway-integration:"
    yield "        type: mock"
    # Without it the media type */* makes the request binary, and the template fails.
    yield "        contentHandling: CONVERT_TO_TEXT"
    yield """        requestTemplates: {application/json: '{"statusCode": 204}'}"""
    yield f'        responses: {{default: {{statusCode: "204", responseParameters: {{{answers}}}}}}}'
    yield "    - !Ref AWS::NoValue"


def render_target(function: str) -> str:
    """Return the URI that invokes a function: the alias of its release, or what was deployed last."""
    return f'!Sub ["{_URI % (_ARN % function.capitalize())}", {{Live: !If [IsReleased, ":live", ""]}}]'


def render_throttles() -> Iterator[str]:
    """Yield the settings of the methods that write. All others inherit the stage's, which are those of reads.

    A method's own settings inherit none of the stage's, and all of them are one update of limited size.
    """
    rate, burst = (
        f"!If [HasWrite{what}, !Ref WriteThrottle{what}, !Ref Throttle{what}]" for what in ("Rate", "Burst")
    )
    for route in sorted(ROUTES, key=lambda each: each.path):
        if route.function == PRODUCE:
            path = "/" + route.path.replace("/", "~1")
            for method in route.methods:
                yield (
                    f'- {{ResourcePath: "{path}", HttpMethod: {method}, MetricsEnabled: true, '
                    f"ThrottlingRateLimit: {rate}, ThrottlingBurstLimit: {burst}}}"
                )


def insert_paths(template: str) -> str:
    """Return the template with the routes of the code. Raises ValueError if it lacks the markers."""
    routed = replace_between(template, BEGIN, _INDENT + END, (_INDENT + line for line in render_paths()))
    throttles = (_INDENT_OF_THROTTLES + line for line in render_throttles())
    return replace_between(routed, _BEGIN_THROTTLES, _INDENT_OF_THROTTLES + _END_THROTTLES, throttles)


def write(path: Path) -> None:
    """Update the routes in the template `path`."""
    path.write_text(insert_paths(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(project_root() / "template.yaml")
