"""Redis Cluster, as the rest of the job knows it: it opens one, hands it to what is here, and closes it."""

from keylane.adapters.redis.cluster import Cluster, RedisSettings
from keylane.adapters.redis.eviction import SAFE_POLICY, eviction_policies
from keylane.errors import BadConfig
from keylane.ports import Clock

__all__ = ["Cluster", "RedisSettings", "check_eviction_policy"]


def check_eviction_policy(cluster: Cluster, clock: Clock) -> None:
    """Raise BadConfig where a primary may evict keys, StateUnavailable where no node answers.

    A primary that does not answer is checked when the lanes are opened again: its own are parked until
    then.
    The policies that evict only keys with an expiry are refused, too: tombstone markers and the values of
    topics with a `ttl` have one. A user who may not run INFO is trusted.
    """
    for node, policy in eviction_policies(cluster, clock).items():
        if policy != SAFE_POLICY:
            raise BadConfig(
                f"Redis node {node.host}:{node.port} may evict keys (maxmemory-policy {policy}): readers "
                f"would miss records. Set maxmemory-policy to {SAFE_POLICY}: a full node then refuses "
                f"writes, and the job waits"
            )
