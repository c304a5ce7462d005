"""The health of what Keylane depends on: Kafka's clusters and Redis."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from keylane import routing
from keylane.errors import KeylaneError
from keylane.explore.ports import Metadata
from keylane.model.clusters import DEFAULT
from keylane.ports import Call, Clock, Deadline, State
from keylane.state import redis_keys

_SLOTS_STEP = routing.SLOTS // 256


@dataclass(frozen=True, slots=True)
class PartHealth:
    """The answer of one part: how long it took, and `why` it failed, None if it did not."""

    took_ms: int
    why: str | None = None


def check_health(
    clusters: Mapping[str, Metadata],
    state: State | None,
    clock: Clock,
    timeout_ms: float,
    state_timeout_ms: float,
) -> dict[str, PartHealth]:
    """Check each configured part in turn.

    `kafka` is the default cluster, `kafka.NAME` another; `redis` is healthy if all shards are.
    """
    parts = {
        "kafka" if name == DEFAULT else f"kafka.{name}": _check(metadata.cluster, clock, timeout_ms)
        for name, metadata in clusters.items()
    }
    if state is not None:
        parts["redis"] = _check(ShardsProbe(state), clock, state_timeout_ms)
    return parts


def _check(probe: Callable[[Deadline], object], clock: Clock, timeout_ms: float) -> PartHealth:
    began_s = clock.monotonic_s()
    why = None
    try:
        probe(Deadline.after_ms(timeout_ms, clock))
    except KeylaneError as error:
        why = str(error)
    return PartHealth(round((clock.monotonic_s() - began_s) * 1000), why)


@dataclass(frozen=True, slots=True)
class ShardsProbe:
    """Reads a layout's slot, and one slot of each shard. Raises StateUnavailable."""

    state: State

    def __call__(self, deadline: Deadline) -> None:
        """Read them all before the deadline."""
        keys = {routing.key_slot(redis_keys.layout_key("")): redis_keys.layout_key("")}
        slots = range(0, routing.SLOTS, _SLOTS_STEP)
        first_slots = dict(zip(reversed(self.state.hosts(slots, deadline)), reversed(slots), strict=True))
        keys |= {slot: b"{%b}" % routing.hash_tag(slot) for slot in first_slots.values()}
        self.state.run([Call(slot, (b"GET", key)) for slot, key in keys.items()], deadline)
