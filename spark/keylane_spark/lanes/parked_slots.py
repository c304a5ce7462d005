"""Slots that take no writes: their lanes are parked, which means left out until their shard answers again."""

from collections.abc import Collection, Iterable

from keylane.adapters.redis.cluster import Node
from keylane.adapters.redis.errors import Remedy, remedy_for
from keylane.adapters.redis.resp import encode_command
from keylane.errors import StateUnavailable
from keylane.routing import hash_tag
from keylane_spark.lanes import function_library as library
from keylane_spark.lanes.function_library import CallRefused, FunctionLibrary

_NO_RECORDS = (b"0",) * 15
"""Epoch, range, times, flag and options of a call for no records."""


class ParkedSlots:
    """Parked slots, each with the reason. They stay parked until the lanes are opened again.

    Shared by the threads of one opening: whoever finds that a slot takes no writes parks it for all.
    """

    def __init__(self, reasons: dict[int, str] | None = None) -> None:
        self._reasons = dict(reasons or {})
        self.complete_as_of_ms = 0
        """The time as of which all parked lanes were known to be complete; 0: not known."""

    def __contains__(self, slot: int) -> bool:
        return slot in self._reasons

    def __len__(self) -> int:
        return len(self._reasons)

    @property
    def reasons(self) -> dict[int, str]:
        """The parked slots and why each is parked."""
        return self._reasons.copy()

    def park(self, slots: Iterable[int], why: str) -> None:
        """Add slots; a slot that is parked keeps its reason."""
        # One assignment: other threads look at the slots meanwhile.
        self._reasons = dict.fromkeys(slots, why) | self._reasons

    def copy(self) -> "ParkedSlots":
        """The same slots, as a new object."""
        return self.only(self._reasons)

    def only(self, slots: Collection[int]) -> "ParkedSlots":
        """Those of the slots that are parked, as a new object."""
        kept = ParkedSlots({slot: self._reasons[slot] for slot in slots if slot in self._reasons})
        kept.complete_as_of_ms = self.complete_as_of_ms
        return kept


def is_of_slot(error: BaseException | None) -> bool:
    """Whether the trouble is the slot's own, a migration, and not its node's."""
    return isinstance(error, Exception) and remedy_for(error) in (Remedy.FOLLOW_ASK, Remedy.SPLIT)


def is_of_lane(error: BaseException | None) -> bool:
    """Whether other lanes of its node may be written: its slot migrates, or it needs room on a full node."""
    return is_of_slot(error) or library.is_full(error)


def writable(library_: FunctionLibrary, slots: Iterable[int]) -> set[int]:
    """Those of the slots that take writes now.

    The call names a lane that does not exist, and writes nothing. It is refused by a full node, and by a slot
    that migrates: there any key might have left already. Of a node that does not answer one slot is tried.
    """
    found: set[int] = set()
    away: set[Node | None] = set()
    for slot in sorted(slots):
        node = library_.cluster.known_primary(slot)
        if node in away and node is not None:
            continue
        key = b"{%b}:probe" % hash_tag(slot)
        try:
            library_.call(slot, encode_command(b"FCALL", library.APPLY, b"1", key, *_NO_RECORDS))
        except CallRefused:
            found.add(slot)  # there is no such lane: the slot takes calls
        except StateUnavailable as unavailable:
            if not is_of_slot(unavailable.__cause__):
                away |= {node, library_.cluster.known_primary(slot)}
    return found
