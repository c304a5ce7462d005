"""Which schema the values of a topic must have."""

from dataclasses import dataclass
from typing import Any


def default_subject(topic: str, part: str) -> str:
    """Return the subject of a topic's `part`, key or value, by Confluent's default strategy."""
    return f"{topic}-{part}"


@dataclass(frozen=True, slots=True)
class SchemaRule:
    """The schema for topics that match the pattern: a JSON Schema, or a registry's subject ("" for none).

    `is_plain`: values are plain JSON, and not in the registry's wire format.
    """

    pattern: str
    schema: Any = None
    subject: str = ""
    is_plain: bool = False

    def subject_of(self, topic: str) -> str:
        """Return the subject's name for a topic."""
        return self.subject.replace("{topic}", topic)
