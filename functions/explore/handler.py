"""The explore function: asks Kafka itself, and how healthy Kafka and Redis are."""

import os
from typing import Any

from keylane.api.http.gateway import answer
from keylane.app import build_guard, explore
from keylane.wiring.runtime import Runtime

application = explore.build(Runtime(), os.environ)
guard = build_guard(Runtime(), os.environ)


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one API Gateway REST proxy event."""
    return answer(application, event, context, guard)
