"""The writer's half of Redis, and the Kafka admin client of the job."""

import keylane.adapters.redis  # noqa: F401 (before any module here imports redis-py: see there)
