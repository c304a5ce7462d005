"""The applications: what each function does, whoever received the request or the batch.

Each module has the operations of one function, and `build`, which makes the application of a runtime and an
environment. Hosts call it: Lambda's handlers in `functions/`, and the standing server.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.api.http.gateway import Guard
    from keylane.api.http.router import Application, Operations
    from keylane.metrics.meter import Meter
    from keylane.wiring.runtime import Runtime

Parts = TypeVar("Parts")


def build_application(
    operations: Operations,
    build_parts: Callable[[Runtime, Mapping[str, str], Meter], Parts],
    runtime: Runtime,
    environment: Mapping[str, str],
) -> Application[Parts]:
    """Return the application of these operations. Its parts are built by the first request."""
    from keylane.api.http.router import Application  # noqa: PLC0415 (the authorizer answers no requests)
    from keylane.wiring.application import build_meter, read_api_settings  # noqa: PLC0415 (as above)

    meter = build_meter(runtime, environment)
    open_parts = partial(build_parts, runtime, environment, meter)
    read_settings = partial(read_api_settings, environment)
    return Application(operations, open_parts, read_settings, meter=meter, clock=runtime.clock)


def build_guard(runtime: Runtime, environment: Mapping[str, str]) -> Guard | None:
    """Return what admits API Gateway's requests by a user pool's tokens; None where none is set."""
    if not environment.get("KEYLANE_USER_POOL"):
        return None
    from keylane.app.user_pool import PoolGuard  # noqa: PLC0415 (no function loads it without a pool)

    return PoolGuard(runtime, environment)
