"""An answer over HTTP, for all that ask a server. It imports little: light processes have it, too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

PROBLEM = "urn:keylane:problem:"
ABSENT = f"{PROBLEM}key-absent"


class Reply(NamedTuple):
    """An answer; names of its headers are in lower case. `status`: 0, there was none.

    `began_ms`, `ended_ms`: when its request was sent and answered, by the wall clock.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    began_ms: int = 0
    ended_ms: int = 0

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def is_of_key(self) -> bool:
        """Whether it says what a key has: its record, or that there is none."""
        return self.status == 200 or (self.status == 404 and ABSENT.encode() in self.body)
