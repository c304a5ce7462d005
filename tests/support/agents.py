"""An agent's messages to an application: what `POST /mcp` takes, in each version of the protocol."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from keylane.api.http.request import Request
from keylane.api.mcp import versions

if TYPE_CHECKING:
    from keylane.access.scopes import Scope
    from keylane.api.http.response import Response
    from keylane.api.http.router import Application

JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
STATELESS_META = {versions.META_VERSION: versions.STATELESS, versions.META_CAPABILITIES: {}}


def mcp_request(body: Any, scope: Scope | None = None, **headers: str) -> Request:
    """Return a POST; a body that isn't bytes is JSON. Underscores in headers' names stand for dashes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
    return Request("POST", "/mcp", {}, given, data, id="request-1", scope=scope)


def a_message(method: str, message_id: Any = 1, **params: Any) -> dict[str, Any]:
    """Return a request of JSON-RPC."""
    return {"jsonrpc": "2.0", "id": message_id, "method": method, "params": params}


def stateless(method: str, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a request of the version without a handshake, and its headers."""
    headers = {"mcp_protocol_version": versions.STATELESS, "mcp_method": method}
    if "name" in params:
        headers["mcp_name"] = params["name"]
    return a_message(method, _meta=STATELESS_META, **params), headers


class Agent:
    """Calls tools of an application, as one caller."""

    def __init__(self, application: Application[Any], scope: Scope | None = None) -> None:
        self._application = application
        self._scope = scope

    def post(self, body: Any, **headers: str) -> Response[Any]:
        return self._application.respond(mcp_request(body, self._scope, **headers))

    def call(self, tool: str, **arguments: Any) -> tuple[Any, bool]:
        """Return a tool's structured result, and whether it is an error."""
        response = self.post(a_message("tools/call", name=tool, arguments=arguments))
        assert response.status_code == 200, response.body
        result = json.loads(response.body)["result"]
        [content] = result["content"]
        found = json.loads(content["text"])
        assert result.get("structuredContent", found) == found
        return found, result["isError"]

    def ask(self, tool: str, **arguments: Any) -> Any:
        """Return a tool's result, which is no error."""
        found, is_error = self.call(tool, **arguments)
        assert not is_error, found
        return found
