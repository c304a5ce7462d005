"""Changes as Server-Sent Events (WHATWG HTML, 9.2), and where they come from."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from keylane.model.records import Answer

RECORD, ABSENT, LEFT, GAP, PROBLEM, CLOSING = "record", "absent", "left", "gap", "problem", "closing"
KEY, TOPIC = KINDS = ("key", "topic")
"""What changes are of."""


class ChangeEvent(NamedTuple):
    """One event. Without a name it only says where the stream is.

    `key`: of the record that it is about; none: it is for all listeners. `answer`: what was found under it.
    `is_only_change`: of a topic: nothing came between what was reported before and what was found now.
    """

    name: str = ""
    data: str = ""
    id: str = ""
    key: bytes = b""
    answer: Answer | None = None
    is_only_change: bool = False

    def render(self) -> bytes:
        """Return the event's lines. A value may have line breaks, as indented JSON has."""
        lines = [f"id: {self.id}"] if self.id else []
        if self.name:
            # Not splitlines: only these end a line of an event, and other characters stay as they are.
            data = self.data.replace("\r\n", "\n").replace("\r", "\n")
            lines += [f"event: {self.name}", *(f"data: {line}" for line in data.split("\n"))]
        return ("\n".join(lines) + "\n\n").encode("utf-8", "surrogatepass")


Choose = Callable[[ChangeEvent], ChangeEvent | None]
"""What a listener is sent of the events of the keys that it wants, in their order; None: nothing."""


class ChangeSource(Protocol):
    """The changes of a key or a topic, for any number of listeners. Its methods may wait."""

    kind: str
    """One of KINDS."""
    identity: Hashable
    """Sources with the same one report the same events, so their listeners share one of them."""
    instead: str
    """What to request where nothing is streamed."""

    def start(self) -> None:
        """Read where the changes begin. Raises what a read of the same raises."""

    def wait(self, bound_s: float) -> Sequence[ChangeEvent]:
        """Return the next changes, none if nothing changed in time. Raises as `start`."""

    def catch_up(
        self, position: Any, is_wanted: Callable[[bytes], bool]
    ) -> tuple[Sequence[ChangeEvent], Any]:
        """Return changes from a listener's position on, and the position after them.

        That is None once the listener has what `wait` has returned. Raises as `start`.
        """
