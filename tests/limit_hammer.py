"""One of several processes with one limit: python -m tests.limit_hammer NODES TOPIC PER_MINUTE HOLDS SECONDS.

Begins when a line comes in. Tells, as JSON, how often it was let through, and when it asked first and last
(seconds since 1970).
"""

from __future__ import annotations

import json
import sys
import time

from keylane.adapters.redis_cluster import Cluster
from keylane.adapters.redis_limits import RedisLimits
from keylane.adapters.redis_scripts import Scripts
from keylane.limits import TOPIC, Load, Rate, Subject
from keylane.ports import Clock
from keylane.settings import redis_settings


def main() -> None:
    nodes, topic, *numbers = sys.argv[1:]
    per_minute, holds, seconds = map(int, numbers)
    cluster = Cluster(redis_settings({"KEYLANE_REDIS_NODES": nodes}))
    limiter = RedisLimits(Scripts(cluster), Clock(), 5_000)
    subject = Subject(TOPIC, topic, (Rate("requests", per_minute, holds),), Load(1, 1, 1))
    limiter.take([subject._replace(name=f"{topic}-connects")])
    print("ready", flush=True)  # noqa: T201 (whoever started it waits for this)
    sys.stdin.readline()
    admitted, unknown = 0, 0
    begin_s = last_s = time.time()
    while last_s < begin_s + seconds:
        [standings] = limiter.take([subject])
        last_s = time.time()
        unknown += standings is None
        admitted += standings is not None and standings[0].wait_s == 0
    cluster.close()
    told = {"admitted": admitted, "unknown": unknown, "begin_s": begin_s, "last_s": last_s}
    print(json.dumps(told))  # noqa: T201 (as above)


if __name__ == "__main__":
    main()
