"""Redis Cluster, as the rest of the job knows it: it opens one, hands it to what is here, and closes it."""

from keylane.adapters.redis.cluster import Cluster, RedisSettings

__all__ = ["Cluster", "RedisSettings"]
