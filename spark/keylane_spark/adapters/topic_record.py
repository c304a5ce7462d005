"""The writer's own record of a topic, `{keylane}:topic:T`: what the readers' layout record does not hold.

JSON with the fields of `TopicRecord`; the layout that is being built has the form of a layout record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from keylane.state import codec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from keylane.model.records import Layout


Lineage = tuple[tuple[int, int], ...]
"""Leader epochs of a partition and the offsets at which they began, both rising: `generations.lineage`."""


def topic_key(topic: str) -> bytes:
    """Key of a topic's record."""
    return b"{keylane}:topic:" + topic.encode()


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that holds an epoch: its host, its pid, and since when."""

    host: str
    pid: int
    since_ms: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """What a topic's writer leaves to the next one.

    `topic_id`: Kafka's, a new one when a topic is deleted and created again. `began`: the oldest offset of
    each partition when the topic's state began. `building`: the layout whose generation is being built
    beside the one that is served. `remove`: the generations to be removed. `lineages`: for each partition the
    leader epochs of the log that the state was read from; empty where they are not known.
    """

    topic_id: str
    began: tuple[int, ...]
    owner: Owner
    building: Layout | None = None
    remove: tuple[int, ...] = ()
    lineages: tuple[Lineage, ...] = ()

    def removing(self, generations: Iterable[int]) -> Self:
        """The record with these generations added to its list."""
        return replace(self, remove=tuple(sorted({*self.remove, *generations})))

    def removed(self, generation: int) -> Self:
        """The record with this generation taken from its list."""
        return replace(self, remove=tuple(each for each in self.remove if each != generation))

    def switched(self, old: int) -> Self:
        """The record after readers switched from the generation `old` to the one that was being built."""
        return replace(self.removing([old]), building=None)

    def to_json(self) -> bytes:
        """JSON in UTF-8."""
        fields = {
            "topic_id": self.topic_id,
            "began": list(self.began),
            "owner": {name: getattr(self.owner, name) for name in Owner.__slots__},
            "building": json.loads(codec.encode_layout(self.building)) if self.building else None,
            "remove": list(self.remove),
            "lineages": self.lineages,
        }
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Parse `to_json`; unknown fields, of a newer writer, are ignored. Raises CodecError."""
        try:
            fields = json.loads(data)
            building, owner = fields["building"], fields["owner"]
            return cls(
                topic_id=str(fields["topic_id"]),
                began=tuple(map(int, fields["began"])),
                owner=Owner(
                    str(owner["host"]), int(owner["pid"]), int(owner["since_ms"]), int(owner["epoch"])
                ),
                building=codec.decode_layout(json.dumps(building).encode()) if building else None,
                remove=tuple(map(int, fields["remove"])),
                lineages=tuple(
                    tuple((int(epoch), int(began)) for epoch, began in lineage)
                    for lineage in fields.get("lineages", ())
                ),
            )
        except codec.ODD_JSON as error:
            raise codec.CodecError(f"this is not a topic record: {error!r}") from error
