"""Refuses a Redis that evicts keys: what it evicts, readers miss, and no watermark says so."""

import re

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.error_replies import NoPermissionError, RedisError
from keylane.adapters.redis.errors import translate_redis_errors
from keylane.adapters.redis.resp import encode_command
from keylane.errors import BadConfig
from keylane.ports import Clock, Deadline

SAFE_POLICY = "noeviction"
_TIMEOUT_MS = 5000
_POLICY = re.compile(rb"^maxmemory_policy:(\S+)", re.MULTILINE)


def check_eviction_policy(cluster: Cluster, clock: Clock) -> None:
    """Raise BadConfig where a primary may evict keys, StateUnavailable where no node answers.

    A primary that does not answer is checked when the lanes are opened again: its own are parked until
    then.
    The policies that evict only keys with an expiry are refused, too: tombstone markers and the values of
    topics with a `ttl` have one. A user who may not run INFO is trusted.
    """
    info = encode_command(b"INFO", b"memory")
    with translate_redis_errors():
        deadline = Deadline.after_ms(_TIMEOUT_MS, clock)
        cluster.refresh(deadline)
        for node in {shard[0] for shard in cluster.shards if shard}:
            try:
                (reply,) = cluster.roundtrip(node, info, 1, Deadline.after_ms(_TIMEOUT_MS, clock))
            except (RedisError, OSError):
                continue
            if isinstance(reply, NoPermissionError):
                continue
            if isinstance(reply, Exception):
                raise reply
            found = _POLICY.search(reply)
            policy = found[1].decode() if found else SAFE_POLICY
            if policy != SAFE_POLICY:
                raise BadConfig(
                    f"Redis node {node.host}:{node.port} may evict keys (maxmemory-policy {policy}): readers "
                    f"would miss records. Set maxmemory-policy to {SAFE_POLICY}: a full node then refuses "
                    f"writes, and the job waits"
                )
