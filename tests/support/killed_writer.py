"""A function that is killed when its record is in Kafka and its answer not yet remembered.

`python -m tests.support.killed_writer`: an event on standard input, settings in the environment.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from tests.support.builders import load_handler

from keylane.adapters.redis.idempotency import RedisIdempotencyStore


def main() -> None:
    RedisIdempotencyStore.settle = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign, assignment]
    load_handler("produce").lambda_handler(json.load(sys.stdin), None)


if __name__ == "__main__":
    main()
