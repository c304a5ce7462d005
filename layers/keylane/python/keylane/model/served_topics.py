"""Which of Kafka's topics a deployment serves, as KEYLANE_TOPICS says."""

from dataclasses import dataclass

from keylane.errors import TopicNotServed
from keylane.model.patterns import fits
from keylane.model.routes import PermissionKind

ALL = ("*",)
INTERNAL = "_"
"""Names that begin so are internal topics, such as __consumer_offsets and _schemas."""


@dataclass(frozen=True, slots=True)
class ServedTopics:
    """Patterns of the topics that are read and written.

    An internal topic needs a pattern that begins with an underscore, too: `*` does not serve it.
    """

    read: tuple[str, ...] = ALL
    write: tuple[str, ...] = ALL

    def is_served(self, topic: str, kind: PermissionKind = PermissionKind.READ) -> bool:
        """Return whether the topic is read here or, with PermissionKind.WRITE, written."""
        patterns = self.write if kind is PermissionKind.WRITE else self.read
        if topic.startswith(INTERNAL):
            return any(each.startswith(INTERNAL) and fits(each, topic) for each in patterns)
        return patterns is ALL or any(fits(each, topic) for each in patterns)

    def check(self, topic: str, kind: PermissionKind = PermissionKind.READ) -> None:
        """Raise TopicNotServed for a topic that is not served."""
        if not self.is_served(topic, kind):
            raise TopicNotServed(topic, "written" if kind is PermissionKind.WRITE else "read")


ALL_TOPICS = ServedTopics()
"""All but the internal ones."""
