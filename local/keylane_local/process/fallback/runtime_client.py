"""awslambdaric's native module in pure Python, for systems other than Linux, where it is not built.

It has the same four functions. `import runtime_client` finds it when this folder is on the path.
"""

# ruff: noqa: INP001 - the folder goes on a function's path and is not a package

import http.client
import os

_PREFIX = "/2018-06-01/runtime/invocation"
_DEADLINE = "Lambda-Runtime-Deadline-Ms"
_connection: http.client.HTTPConnection | None = None
_headers: dict[str, str] = {}


def initialize_client(user_agent: str) -> None:
    """Set the User-Agent of all further requests."""
    _headers["User-Agent"] = user_agent


def next() -> tuple[bytes, dict[str, str | int]]:  # noqa: A001 - the module's interface
    """Wait for an invocation; return its event and its headers, with the deadline (ms since 1970) as int.

    Raises RuntimeError.
    """
    event, headers = _request("GET", f"{_PREFIX}/next", None, {})
    return event, {**headers, _DEADLINE: int(headers[_DEADLINE])}


def post_invocation_result(
    invoke_id: str, data: bytes, content_type: str, invocation_id: str | None = None
) -> None:
    """Answer the invocation. Raises RuntimeError."""
    _request("POST", f"{_PREFIX}/{invoke_id}/response", data, {"Content-Type": content_type})


def post_error(invoke_id: str, data: str, xray_fault: str, invocation_id: str | None = None) -> None:
    """Answer the invocation with an error object. Raises RuntimeError."""
    headers = {"Content-Type": "application/json", "Lambda-Runtime-Function-Error-Type": "Unhandled"}
    _request("POST", f"{_PREFIX}/{invoke_id}/error", data.encode(), headers)


def _request(
    method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> tuple[bytes, dict[str, str]]:
    global _connection  # noqa: PLW0603 - one connection per process, as in the native module
    if _connection is None:
        _connection = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
    try:
        _connection.request(method, path, body, {**_headers, **headers})
        response = _connection.getresponse()
        payload = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise RuntimeError(f"{method} {path} failed: {error}") from error
    if response.status >= http.client.BAD_REQUEST:
        raise RuntimeError(f"{method} {path} was answered with {response.status}")
    return payload, dict(response.getheaders())
