"""What a topic's records become before they are stored, as `keylane.toml` says and the layout stores it."""

import json
from dataclasses import asdict, dataclass
from typing import Literal, Self, TypeAlias

OnError: TypeAlias = Literal["stop", "skip", "keep"]
"""What is done about a record on which a transform fails.

`stop`: its partition goes no further. `skip`: as if it had not been written. `keep`: it is stored as it is.
"""


@dataclass(frozen=True, slots=True)
class Transform:
    """A topic's transform. All of it is part of the layout.

    `where`, `select`: Spark SQL. `function`: "module:function", alone; `version`: that of what it does.
    `envelope`: what the values are that it reads, one of ENVELOPES: of an event it sees the row.
    """

    where: str | None = None
    select: str | None = None
    function: str | None = None
    version: str | None = None
    envelope: str = "none"

    @property
    def is_sql(self) -> bool:
        """Whether Spark computes it."""
        return self.function is None

    @property
    def stores_other_values(self) -> bool:
        """Whether what is stored is not what Kafka has."""
        return self.select is not None or self.function is not None

    def to_json(self) -> str:
        """Return it as a layout stores it."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what `to_json` was given. Names of a newer writer are ignored."""
        found = json.loads(text)
        return cls(**{name: found[name] for name in cls.__slots__ if name in found})
