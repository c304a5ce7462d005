"""The schemas that a Schema Registry has for a topic's keys and values."""

from collections.abc import Sequence
from typing import NamedTuple

from keylane.model.schema_rules import default_subject
from keylane.ports import Schemas, SubjectVersion, WaitBudget

MOST_VERSIONS = 10
"""Of a subject: each is a request to the registry."""


class SubjectSchemas(NamedTuple):
    """The newest versions of a subject, newest first."""

    subject: str
    versions: Sequence[SubjectVersion]


def find_schemas(schemas: Schemas, topic: str, registry_wait: WaitBudget) -> list[SubjectSchemas]:
    """Return those subjects of a topic that the registry has. Raises RegistryUnavailable."""
    with registry_wait.asking() as deadline:
        found = [
            SubjectSchemas(subject, schemas.newest_versions(subject, MOST_VERSIONS, deadline))
            for subject in (default_subject(topic, part) for part in ("key", "value"))
        ]
    return [each for each in found if each.versions]
