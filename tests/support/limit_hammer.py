"""One of several processes with one limit: python -m tests.support.limit_hammer NODES TOPIC PER_MINUTE HOLDS.

Begins when it reads a line: the time to end at (seconds since 1970, like all times here). Prints, as JSON,
how often it was admitted, and when its first and last requests were sent and answered.
"""

from __future__ import annotations

import json
import sys
import time

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.rate_limits import RedisRateLimiter
from keylane.adapters.redis.scripts import Scripts
from keylane.config.functions import redis_settings
from keylane.ports import Clock
from keylane.produce.rate_limits import TOPIC, Rate, RateLimitSubject, RequestLoad


def main() -> None:
    nodes, topic, *numbers = sys.argv[1:]
    per_minute, holds = map(int, numbers)
    cluster = Cluster(redis_settings({"KEYLANE_REDIS_NODES": nodes}))
    limiter = RedisRateLimiter(Scripts(cluster), Clock(), 5_000)
    subject = RateLimitSubject(TOPIC, topic, (Rate("requests", per_minute, holds),), RequestLoad(1, 1, 1))
    limiter.take([subject._replace(name=f"{topic}-connects")])
    print("ready", flush=True)  # noqa: T201 (whoever started it waits for this)
    until_s = float(sys.stdin.readline())
    admitted, unknown = 0, 0
    first, last = None, (0.0, 0.0)
    while (asked_s := time.time()) < until_s:
        [states] = limiter.take([subject])
        last = asked_s, time.time()
        first = first or last
        unknown += states is None
        admitted += states is not None and states[0].wait_s == 0
    cluster.close()
    print(json.dumps({"admitted": admitted, "unknown": unknown, "first": first, "last": last}))  # noqa: T201 (as above)


if __name__ == "__main__":
    main()
