"""Redis Cluster: connections, routing, replicas, scripts, and the ports that they serve."""

import sys

_TELEMETRY = "opentelemetry"

if "redis" not in sys.modules and _TELEMETRY not in sys.modules:
    # redis-py imports OpenTelemetry's SDK wherever it is installed, for metrics that nobody has asked it for:
    # 65 ms of CPU at the start of each process. With None here that import fails, which redis-py allows.
    sys.modules[_TELEMETRY] = None  # type: ignore[assignment]
    try:
        import redis  # noqa: F401 (to have it imported without)
    finally:
        del sys.modules[_TELEMETRY]
