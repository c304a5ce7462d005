"""Problems of paths and methods that no route takes.

At paths of REST Proxy that Keylane does not have they say what to use instead, and have REST Proxy's
`error_code` and `message`, which its clients read.
"""

from collections.abc import Sequence

from keylane.api.http import problems
from keylane.api.http.response import Response

NO_ROUTE = "keys are at /topics/{topic}/keys/{key}; a slash in a key is written %2F"
REST_PROXY = {
    "consumers": "there are no consumers: /topics/{topic}/partitions/{partition}/records returns raw "
    "records, /topics/{topic}/keys/{key} the latest one of a key",
    "v3": "of REST Proxy v3 there are clusters, their topics, partitions and offsets, and records to write",
}
"""The first part of a path -> what there is instead."""


def unknown_route(path: str, request_id: str) -> Response[str]:
    """Render the problem of a path without a route."""
    detail = REST_PROXY.get(_first_part(path), NO_ROUTE)
    more = _members(path, problems.UNKNOWN_ROUTE, detail)
    return problems.problem(problems.UNKNOWN_ROUTE, detail, request_id, more=more)


def wrong_method(path: str, methods: Sequence[str], request_id: str) -> Response[str]:
    """Render the problem of a method that a path does not take; `methods`: those that it takes."""
    allow = ", ".join(dict.fromkeys(methods))
    detail = f"the path takes {allow}"
    more = _members(path, problems.WRONG_METHOD, detail)
    return problems.problem(problems.WRONG_METHOD, detail, request_id, more=more, headers={"Allow": allow})


def _members(path: str, kind: problems.Problem, detail: str) -> dict[str, int | str]:
    is_rest_proxy = _first_part(path) in REST_PROXY
    return {"error_code": kind.status, "message": detail} if is_rest_proxy else {}


def _first_part(path: str) -> str:
    return path.lstrip("/").partition("/")[0]
