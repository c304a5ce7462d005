"""Redis for many requests: connections and layouts that they share."""

import keylane.adapters.redis  # noqa: F401 (before any module here imports redis-py: see there)
