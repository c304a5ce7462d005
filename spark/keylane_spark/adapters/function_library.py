"""The function library `keylane` from outside: calls that are repeated until they have arrived.

What may pass (a connection lost, a node moved, loading or full, a slot on its way to another node, the
library missing) is repeated with pauses. What the library itself refuses comes out at once, as `Refused`.
"""

from __future__ import annotations

import random
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from keylane.adapters.redis.resp import encode_command, read_reply, translate_redis_errors
from keylane.errors import StateUnavailable
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from keylane.adapters.redis.cluster import Cluster, Node
    from keylane.ports import Clock

APPLY = b"keylane_apply_3"
WHOLE = b"keylane_whole_3"
STRAYS = b"keylane_strays_3"
OPEN = b"keylane_open_3"
GAVE = b"keylane_gave_3"
MARK = b"keylane_mark_3"
EPOCH = b"keylane_epoch_3"
LAYOUT = b"keylane_layout_3"
COMMIT = b"keylane_commit_3"

_PARTS = ("watermark", "records", "writes", "merge", "lanes", "layouts", "views")
"""The library's files: what stands in one may be used in those behind it."""

PATIENCE_S = 60.0
TURN_S = 5.0
"""What one answer may take: a node that is silent for longer is taken for dead, and the map is read anew."""


class Refused(Exception):
    """The library's own no: `word` is FENCED, BEHIND, LOST, CORRUPT or Redis' WRONGTYPE."""

    def __init__(self, word: str, detail: str) -> None:
        super().__init__(f"{word} {detail}")
        self.word = word
        self.detail = detail


def check(reply: Any) -> Any:
    """Give the reply back; raise an error reply: Refused where no repeating mends it, else as it is."""
    if isinstance(reply, Exception):
        word, _, detail = str(reply).partition(" ")
        if word in ("FENCED", "BEHIND", "LOST", "CORRUPT", "WRONGTYPE"):
            raise Refused(word, detail) from reply
        raise reply
    return reply


def call(
    cluster: Cluster,
    slot: int,
    packed: bytes,
    clock: Clock,
    *,
    patience_s: float = PATIENCE_S,
    turn_s: float = TURN_S,
    notify: Callable[[str], None] = lambda _: None,
    error: Exception | None = None,
) -> Any:
    """Send one packed FCALL to the slot's primary until it has its reply, and give that.

    `error`: what the same call met before. Raises Refused, and StateUnavailable once `patience_s` is over.
    """
    until = Deadline.after_ms(patience_s * 1000, clock)
    pause_s = 0.02
    while True:
        try:
            with translate_redis_errors():
                if error is not None:
                    _mend(cluster, slot, error, Deadline.after_ms(turn_s * 1000, clock), notify)
                turn = Deadline.after_ms(turn_s * 1000, clock)
                (reply,) = cluster.roundtrip(cluster.primary(slot), packed, 1, turn)
                return check(reply)
        except StateUnavailable as unavailable:
            error = unavailable.__cause__ if isinstance(unavailable.__cause__, Exception) else unavailable
            if until.remaining_s <= 0:
                raise StateUnavailable(f"Redis took no writes for {patience_s:.0f} s: {error}", 10) from error
            if not _is_library_missing(error):
                clock.pause_s(min(pause_s * random.uniform(0.5, 1.0), until.remaining_s))  # noqa: S311
                pause_s = min(pause_s * 2, 2.0)


def replicas_reached(
    cluster: Cluster, nodes: Iterable[Node], wanted: int, wait_ms: int, turn: Deadline
) -> int:
    """How many replicas, of each node the fewest, have all that was written over our connections.

    Waits `wait_ms` for `wanted` of them (Redis' WAIT), on all nodes at once. Raises StateUnavailable.
    """
    packed = encode_command(b"WAIT", b"%d" % wanted, b"%d" % wait_ms)
    # A connection that broke knows of no writes: its node has been told of, and is asked nothing.
    asked = [node for node in nodes if cluster.is_connected(node)]
    try:
        with translate_redis_errors():
            for node in asked:
                connection = cluster.connection(node, turn)
                connection._sock.settimeout(turn.remaining_s + wait_ms / 1000)  # noqa: SLF001 (as in redis_lanes)
                connection.send_packed_command([packed], check_health=False)
            replies = [check(read_reply(cluster.connection(node, turn))) for node in asked]
    except BaseException:
        for node in asked:
            cluster.drop(node)
        raise
    return min(map(int, replies), default=wanted)


def _mend(
    cluster: Cluster, slot: int, error: Exception, turn: Deadline, notify: Callable[[str], None]
) -> None:
    """Do what the error asks for before its call is repeated."""
    if _is_library_missing(error):
        _load(cluster, slot, turn)
        return
    if cluster.nodes:
        notify(f"writing to Redis is held up: {error}")
    cluster.refresh(turn)


def _load(cluster: Cluster, slot: int, turn: Deadline) -> None:
    folder = files(__package__).joinpath("library")
    code = b"".join(folder.joinpath(f"{part}.lua").read_bytes() for part in _PARTS)
    load = encode_command(b"FUNCTION", b"LOAD", b"REPLACE", code)
    (reply,) = cluster.roundtrip(cluster.primary(slot), load, 1, turn)
    if isinstance(reply, Exception):
        raise reply


def _is_library_missing(error: Exception) -> bool:
    return isinstance(error, ResponseError) and "Function not found" in str(error)
