"""The query function: reads from the state in Redis."""

import os
from typing import Any

from keylane.api.http.gateway import answer
from keylane.app import build_guard, query
from keylane.wiring.runtime import Runtime

application = query.build(Runtime(), os.environ)
guard = build_guard(Runtime(), os.environ)


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one API Gateway REST proxy event."""
    return answer(application, event, context, guard)
