"""The writer's own record of a topic, `{keylane}:topic:T`, from which the readers' one can be restored.

JSON with the fields of `TopicRecord`; layouts have the form of a layout record.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from keylane.model.records import Layout
from keylane.state import codec

Lineage = tuple[tuple[int, int], ...]
"""Leader epochs of a partition and the offsets at which they began, both rising: `generations.lineage`."""


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
    beside the one that is served. `remove`: the generations to be removed. `lineages`: for each partition
    the leader epochs of the log that the state was read from; empty where they are not known. `serving`: the
    layout that readers go by. `revision`: the number of the change within the owner's run; 0: of a writer
    that stored no `serving`. `read_since_ms`: when the log began to be read for a generation, from its start;
    not known of generations that older writers began.
    """

    topic_id: str
    began: tuple[int, ...]
    owner: Owner
    building: Layout | None = None
    remove: tuple[int, ...] = ()
    lineages: tuple[Lineage, ...] = ()
    serving: Layout | None = None
    revision: int = 0
    read_since_ms: Mapping[int, int] = field(default_factory=dict)

    @property
    def version(self) -> tuple[int, int]:
        """Of two records of a topic the one with the higher version is the newer one."""
        return self.owner.epoch, self.revision

    @property
    def generations(self) -> set[int]:
        """The generations that the record names."""
        used = {layout.generation for layout in (self.serving, self.building) if layout}
        return used | set(self.remove)

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
            "building": _fields_of(self.building),
            "remove": list(self.remove),
            "lineages": self.lineages,
            "serving": _fields_of(self.serving),
            "revision": self.revision,
            "read_since_ms": {str(generation): ms for generation, ms in self.read_since_ms.items()},
        }
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Parse `to_json`; unknown fields, of a newer writer, are ignored. Raises CodecError."""
        try:
            fields = json.loads(data)
            owner = fields["owner"]
            return cls(
                topic_id=str(fields["topic_id"]),
                began=tuple(map(int, fields["began"])),
                owner=Owner(
                    str(owner["host"]), int(owner["pid"]), int(owner["since_ms"]), int(owner["epoch"])
                ),
                building=_layout_of(fields["building"]),
                remove=tuple(map(int, fields["remove"])),
                lineages=tuple(
                    tuple((int(epoch), int(began)) for epoch, began in lineage)
                    for lineage in fields.get("lineages", ())
                ),
                serving=_layout_of(fields.get("serving")),
                revision=int(fields.get("revision", 0)),
                read_since_ms={
                    int(generation): int(ms) for generation, ms in fields.get("read_since_ms", {}).items()
                },
            )
        except codec.ODD_JSON as error:
            raise codec.CodecError(f"this is not a topic record: {error!r}") from error


def _fields_of(layout: Layout | None) -> dict[str, Any] | None:
    """The fields of a layout record."""
    return json.loads(codec.encode_layout(layout)) if layout else None


def _layout_of(fields: Any) -> Layout | None:
    return codec.decode_layout(json.dumps(fields).encode()) if fields else None
