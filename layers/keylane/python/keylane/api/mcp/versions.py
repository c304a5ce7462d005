"""The versions of the protocol: which one a message speaks, and what that asks of its headers.

The versions up to 2025-11-25 begin with `initialize`, and each later message repeats the version that was
negotiated in `MCP-Protocol-Version`. Without a session nothing is remembered of it: the header counts, and
without one a message speaks the oldest version, which had no such header. From 2026-07-28 on each request
says all of that itself, in `_meta` of its params, and headers repeat parts of it, which have to be equal.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any

from keylane.api.mcp.messages import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    SHOWN_CHARACTERS,
    UNSUPPORTED_VERSION,
    RpcFault,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.api.mcp.messages import RpcMessage

STATELESS = "2026-07-28"
NEGOTIATED = ("2025-11-25", "2025-06-18", "2025-03-26")
"""The newest one is what a client gets that asks for another."""
OLDEST = NEGOTIATED[-1]
"""The only one with batches, and without the header."""
SUPPORTED = (STATELESS, *NEGOTIATED)
VERSION_HEADER, METHOD_HEADER, NAME_HEADER = "mcp-protocol-version", "mcp-method", "mcp-name"
_PREFIX = "io.modelcontextprotocol/"
META_VERSION, META_CAPABILITIES = f"{_PREFIX}protocolVersion", f"{_PREFIX}clientCapabilities"
META_SERVER = f"{_PREFIX}serverInfo"
_ENCODED, _END = "=?base64?", "?="


def version_of(message: RpcMessage, headers: Mapping[str, str]) -> str:
    """Return the version that a message speaks. Raises RpcFault where its parts disagree."""
    given = headers.get(VERSION_HEADER)
    meta = message.params.get("_meta")
    stated = meta.get(META_VERSION) if isinstance(meta, dict) else None
    if message.method == "initialize" and stated is None:
        return OLDEST  # whatever the header says: the version is negotiated
    if stated is not None and stated != given:
        raise RpcFault(
            HEADER_MISMATCH, f"the header MCP-Protocol-Version is not {META_VERSION} of the params' _meta"
        )
    if given is not None and given not in SUPPORTED:
        raise unsupported(given)
    if given == STATELESS and message.id is not None:
        _check_stateless(message, headers, meta)
    return given or OLDEST


def unsupported(requested: str) -> RpcFault:
    """Return the fault of a version that is not spoken here."""
    data = {"supported": SUPPORTED, "requested": requested[:SHOWN_CHARACTERS]}
    return RpcFault(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def negotiate(requested: Any) -> str:
    """Return the version of the answer to `initialize`. Raises RpcFault where none is requested."""
    if not isinstance(requested, str):
        raise RpcFault(INVALID_PARAMS, "protocolVersion is not a string")
    return requested if requested in NEGOTIATED else NEGOTIATED[0]


def _check_stateless(message: RpcMessage, headers: Mapping[str, str], meta: Any) -> None:
    if not isinstance(meta, dict) or META_VERSION not in meta:
        raise RpcFault(INVALID_PARAMS, f"the params have no _meta with {META_VERSION}")
    if not isinstance(meta.get(META_CAPABILITIES), dict):
        raise RpcFault(INVALID_PARAMS, f"{META_CAPABILITIES} of the params' _meta is not an object")
    if headers.get(METHOD_HEADER) != message.method:
        raise RpcFault(HEADER_MISMATCH, "the header Mcp-Method is not the method of the body")
    name = message.params.get("name")
    if message.method == "tools/call" and isinstance(name, str) and _plain(headers.get(NAME_HEADER)) != name:
        raise RpcFault(HEADER_MISMATCH, "the header Mcp-Name is not the name in the body")


def _plain(value: str | None) -> str | None:
    """Return a header's value, decoded where it says that it is base64; None where it is not valid."""
    if value is None or not (value.startswith(_ENCODED) and value.endswith(_END)):
        return value
    try:
        return binascii.a2b_base64(value[len(_ENCODED) : -len(_END)], strict_mode=True).decode()
    except ValueError:
        return None
