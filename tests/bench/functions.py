"""The functions' handlers in this process, and API Gateway's events for them."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from harness import ROOT

if TYPE_CHECKING:
    from types import ModuleType

from tests.support.proxy_events import HttpRequest, build_proxy_event

CONTEXT = SimpleNamespace(
    aws_request_id="bench", function_name="query", get_remaining_time_in_millis=lambda: 29_000
)
HEADERS = (("Host", "localhost"), ("Accept", "*/*"), ("User-Agent", "bench"))


def load_function(name: str) -> ModuleType:
    """Return a new module of a function's handler."""
    path = ROOT / "functions" / name / "handler.py"
    spec = importlib.util.spec_from_file_location(f"keylane_{name}_handler", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def event_of(
    method: str, target: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()
) -> dict[str, Any]:
    """Return the event of a request."""
    return build_proxy_event(
        HttpRequest(method, target, HEADERS + headers, body, "127.0.0.1"), "bench-request"
    )
