"""Finds generations in Redis, and removes one: lanes are retired first, then records and watermarks go.

Every removal names the epoch of its writer. A slot in which a newer writer has opened a lane of the
generation refuses it (Fenced). So a process that slept can't remove what was taken into use meanwhile.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from keylane import routing
from keylane.adapters.redis.cluster import Cluster, Node
from keylane.adapters.redis.errors import translate_redis_errors
from keylane.adapters.redis.resp import encode_command
from keylane.ports import Clock, Deadline
from keylane_spark.lanes import function_library as library
from keylane_spark.lanes.function_library import CallRefused, FunctionLibrary

KEYS_PER_CALL = 1000
"""Keys that one SCAN looks at: well under a millisecond of the server's time."""

_TIMEOUT_MS = 5000
_LANE = re.compile(
    rb"\{[0-9a-z]{1,4}\}:(?P<topic>~?[A-Za-z0-9._-]{1,249}):(?P<generation>[1-9]\d{0,17}):w:\d+\.\d+"
)


@dataclass(slots=True)
class FoundGenerations:
    """The generations that have lanes, by topic (`~NAME`: a view)."""

    by_topic: dict[str, set[int]] = field(default_factory=dict)

    def search(self, cluster: Cluster, clock: Clock) -> Iterator[tuple[int, int]]:
        """Look at all keys in small steps; each yields how many, and 0. Raises StateUnavailable."""
        for _, keys in scan(cluster, clock, b"{*}:*:*:w:*"):
            for key in keys:
                if match := _LANE.fullmatch(key):
                    self.by_topic.setdefault(match["topic"].decode(), set()).add(int(match["generation"]))
            yield KEYS_PER_CALL, 0


def remove_generation(
    functions: FunctionLibrary, topic: str, generation: int, epoch: int
) -> Iterator[tuple[int, int]]:
    """Remove a generation in small steps; each yields how many keys were looked at and removed.

    1. All nodes are scanned, and the lanes found are retired: readers that meet one read the layout again.
    2. All nodes are scanned again, and what belongs to retired lanes is removed, but for their watermarks.
    3. That is repeated until a pass finds nothing: slots may migrate meanwhile. Once a pass has met no new
       lane, records without a lane are removed as well.
    4. The watermarks are removed last, with the epochs of the slots.

    Raises Fenced where a newer writer has a lane; StateUnavailable: a new call then continues.
    """
    removal = _Removal(functions, topic, generation, epoch)
    # The pattern's star matches braces too, so it also finds record keys of other topics that look alike.
    pattern = b"{*}:%b:%d:*" % (topic.encode(), generation)
    own_key = re.compile(
        rb"(?P<slot>\{[0-9a-z]{1,4}\}:%b:%d:)(?P<kind>.)" % (re.escape(topic.encode()), generation)
    )
    passes = 0
    is_settled = False
    while True:
        new_lanes = found = 0
        for node, keys in scan(functions.cluster, functions.clock, pattern):
            records = defaultdict[bytes, list[bytes]](list)
            for key in keys:
                if match := own_key.match(key):
                    if match["kind"] == b"w":
                        new_lanes += removal.retire(match["slot"], key)
                    elif match["kind"] == b"e":
                        removal.last[match["slot"]].add(key)
                    else:
                        records[match["slot"]].append(key)
            found += sum(map(len, records.values()))
            removable = {
                slot: keys for slot, keys in records.items() if is_settled or slot in removal.retired
            }
            yield KEYS_PER_CALL, removal.remove(node, removable) if passes else 0
        if passes and not found and not new_lanes:
            break
        is_settled = passes > 0 and not new_lanes
        passes += 1
    yield from removal.finish()


class _Removal:
    """The calls that remove one generation.

    `retired`: the slots (`{tag}:T:g:`) whose lanes are retired. `last`: the keys of a slot that go last.
    """

    def __init__(self, functions: FunctionLibrary, topic: str, generation: int, epoch: int) -> None:
        self.retired: set[bytes] = set()
        self.last = defaultdict[bytes, set[bytes]](set)
        self._functions = functions
        self._topic = topic
        self._generation = generation
        self._epoch = epoch

    def retire(self, slot: bytes, watermark_key: bytes) -> int:
        """Retire a lane; returns 1, or 0 if it was retired before."""
        if watermark_key in self.last[slot]:
            return 0
        prefix_bytes = b"%d" % (len(slot) + len(b"w:"))
        self._call(watermark_key, library.RETIRE, watermark_key, prefix_bytes)
        self.last[slot].add(watermark_key)
        self.retired.add(slot)
        return 1

    def remove(self, node: Node, by_slot: dict[bytes, list[bytes]]) -> int:
        """Remove keys, by one call for each slot; returns how many."""
        if not by_slot:
            return 0
        calls = [self._command(library.REMOVE, slot + b"e", *keys) for slot, keys in by_slot.items()]
        deadline = Deadline.after_ms(_TIMEOUT_MS, self._functions.clock)
        with translate_redis_errors():
            replies = self._functions.cluster.roundtrip(node, b"".join(calls), len(calls), deadline)
        for slot, reply in zip(by_slot, replies, strict=True):
            if isinstance(reply, Exception):
                self._call(slot, library.REMOVE, slot + b"e", *by_slot[slot])
        return sum(map(len, by_slot.values()))

    def finish(self) -> Iterator[tuple[int, int]]:
        """Remove watermarks and the epochs of the slots."""
        for slot, keys in self.last.items():
            self._call(slot, library.REMOVE, slot + b"e", *keys)
            yield len(keys), len(keys)

    def _call(self, key: bytes, function: bytes, *arguments: bytes) -> None:
        try:
            self._functions.call(routing.key_slot(key), self._command(function, *arguments))
        except CallRefused as refused:
            raise refused.for_lane(self._topic, key, self._epoch) from refused

    def _command(self, function: bytes, key: bytes, *arguments: bytes) -> bytes:
        return encode_command(b"FCALL", function, b"1", key, b"%d" % self._epoch, *arguments)


def scan(cluster: Cluster, clock: Clock, pattern: bytes) -> Iterator[tuple[Node, list[bytes]]]:
    """The keys of all primaries that match, in many small answers, and the node of each answer.

    The slot map is read before. Raises StateUnavailable.
    """
    with translate_redis_errors():
        cluster.refresh(Deadline.after_ms(_TIMEOUT_MS, clock))
        primaries = cluster.primaries()
    for node in primaries:
        cursor = b"0"
        while True:
            command = encode_command(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", b"%d" % KEYS_PER_CALL)
            with translate_redis_errors():
                ((cursor, keys),) = cluster.execute(node, [command], Deadline.after_ms(_TIMEOUT_MS, clock))
            yield node, keys
            if cursor == b"0":
                break
