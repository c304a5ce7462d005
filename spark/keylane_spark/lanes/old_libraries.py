"""Removes the function libraries that other versions of the job have left in Redis."""

import re
from contextlib import suppress

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.error_replies import ResponseError
from keylane.adapters.redis.errors import translate_redis_errors
from keylane.adapters.redis.resp import encode_command
from keylane.errors import StateUnavailable
from keylane.ports import Clock, Deadline
from keylane_spark.lanes.function_library import VERSION

_TIMEOUT_MS = 1000
_OURS = re.compile(rb"keylane(_[0-9a-f]{8})?")


def remove_old_libraries(cluster: Cluster, clock: Clock) -> None:
    """Remove the libraries of other versions from all primaries, as far as these answer and permit it.

    A job that still needs one loads it again: one that was replaced is then refused, one with other topics
    goes on. Call it once the lanes are open.
    """
    listed = encode_command(b"FUNCTION", b"LIST", b"LIBRARYNAME", b"keylane*")
    deadline = Deadline.after_ms(_TIMEOUT_MS, clock)
    with suppress(StateUnavailable):
        for node in cluster.primaries():
            # What one node refuses another one may permit.
            with suppress(StateUnavailable, ResponseError), translate_redis_errors():
                (libraries,) = cluster.execute(node, [listed], deadline)
                names = [dict(zip(each[::2], each[1::2], strict=True))[b"library_name"] for each in libraries]
                old = [
                    name for name in names if _OURS.fullmatch(name) and not name.endswith(VERSION.encode())
                ]
                for name in old:
                    cluster.execute(node, [encode_command(b"FUNCTION", b"DELETE", name)], deadline)
