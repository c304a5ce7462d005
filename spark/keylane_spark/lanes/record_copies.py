"""A topic's records are stored under three hash tags, in three parts of the cluster; two of them suffice.

Each copy has the layout record, the writer's record and the epoch counter, which fences that copy. A read
asks all three, and the newest record counts. So what the loss of one shard, or a failover, took from one copy
is in another one.

Readers go by the copy of the tag `{keylane}`, and by another one only where that has no layout. It is written
last: what readers were shown is in the other copies already.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.errors import StateUnavailable
from keylane.ports import Clock
from keylane.state.redis_keys import COPY_TAGS, RECORD_TAG
from keylane_spark.lanes.function_library import FunctionLibrary, WriteOptions

SLOTS = {tag: routing.key_slot(b"{%b}" % tag) for tag in (*COPY_TAGS, RECORD_TAG)}
"""The slot of each tag, in the order of writing."""
MAJORITY = 2
"""As many copies suffice."""
_LONG_BUDGET_S = 5.0
_BRIEF_BUDGET_S = 1.0
_REST_S = 10.0


class RecordCopies:
    """Sends calls to the three copies. `notify` gets a line when replicas are missing. Not thread-safe."""

    def __init__(
        self, cluster: Cluster, clock: Clock, options: WriteOptions, notify: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._notify = notify
        self._wait_replicas = options.wait_replicas
        self._long = FunctionLibrary(cluster, clock, replace(options, retry_budget_s=_LONG_BUDGET_S))
        brief = replace(options, retry_budget_s=_BRIEF_BUDGET_S, attempt_timeout_s=_BRIEF_BUDGET_S)
        self._brief = FunctionLibrary(cluster, clock, brief)
        self._resting_until_s = dict.fromkeys(SLOTS, 0.0)
        self._short_until_s = 0.0

    def call(
        self, command: Callable[[bytes], bytes], *, for_readers: bool = False, writes: bool = True
    ) -> dict[bytes, Any]:
        """The replies by tag; `command` encodes the call for a tag.

        One of the three may be missing, but `for_readers` not the one that readers go by. A copy that can't
        be reached is left out for some seconds. Raises CallRefused, StateUnavailable.
        """
        replies: dict[bytes, Any] = {}
        for tag, slot in SLOTS.items():
            if for_readers and tag == RECORD_TAG:
                replies[tag] = self._long.call(slot, command(tag))
            elif self._clock.monotonic_s() >= self._resting_until_s[tag]:
                try:
                    replies[tag] = self._brief.call(slot, command(tag))
                except StateUnavailable:
                    self._resting_until_s[tag] = self._clock.monotonic_s() + _REST_S
        for tag, slot in SLOTS.items():
            if len(replies) < MAJORITY and tag not in replies:
                replies[tag] = self._long.call(slot, command(tag))
        if writes:
            self._wait_for_replicas(replies)
        return replies

    def call_one(self, tag: bytes, packed: bytes) -> Any:
        """The reply of one copy. Raises CallRefused, StateUnavailable."""
        return self._brief.call(SLOTS[tag], packed)

    def _wait_for_replicas(self, tags: dict[bytes, Any]) -> None:
        """Wait until replicas have what was written; once some were missing, not for some seconds."""
        if not self._wait_replicas or self._clock.monotonic_s() < self._short_until_s:
            return
        try:
            reached = self._long.count_replicas({self._cluster.primary(SLOTS[tag]) for tag in tags})
        except StateUnavailable:
            reached = 0
        if reached < self._wait_replicas:
            self._short_until_s = self._clock.monotonic_s() + _REST_S
            self._notify(f"{reached} of {self._wait_replicas} replicas have the records of the topics")
