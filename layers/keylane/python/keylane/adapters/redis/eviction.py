"""Which keys a Redis evicts: what it evicts, readers miss, and no watermark says so."""

import re

from keylane.adapters.redis.cluster import Cluster, Node
from keylane.adapters.redis.error_replies import NoPermissionError, RedisError
from keylane.adapters.redis.errors import translate_redis_errors
from keylane.adapters.redis.resp import encode_command
from keylane.ports import Clock, Deadline

SAFE_POLICY = "noeviction"
_TIMEOUT_MS = 5000
_POLICY = re.compile(rb"^maxmemory_policy:(\S+)", re.MULTILINE)


def eviction_policies(cluster: Cluster, clock: Clock, *, with_replicas: bool = False) -> dict[Node, str]:
    """Return `maxmemory-policy` of each primary that answers, and whose user may run INFO.

    `with_replicas`: of each replica, too. One evicts no keys until it is a primary.
    Raises StateUnavailable where no node answers.
    """
    info, found = encode_command(b"INFO", b"memory"), {}
    with translate_redis_errors():
        cluster.refresh(Deadline.after_ms(_TIMEOUT_MS, clock))
        shards = cluster.shards
        for node in {node for shard in shards for node in (shard if with_replicas else shard[:1])}:
            try:
                (reply,) = cluster.roundtrip(node, info, 1, Deadline.after_ms(_TIMEOUT_MS, clock))
            except (RedisError, OSError):
                continue
            if isinstance(reply, NoPermissionError):
                continue
            if isinstance(reply, Exception):
                raise reply
            policy = _POLICY.search(reply)
            found[node] = policy[1].decode() if policy else SAFE_POLICY
    return found
