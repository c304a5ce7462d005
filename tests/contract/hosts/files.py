"""Recordings in files: a line of JSON for each answer, so that `diff` and `grep` can read them, too."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from tests.contract.hosts.case import Answer
from tests.contract.hosts.recording import Recorded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.contract.hosts.recording import Recording

LONGEST = 20_000
"""Bytes of a body that are kept; of a longer one its end is left out, and its digest is behind it."""


def shortened(answer: Answer) -> Answer:
    """The answer as a file has it."""
    if len(answer.body) <= LONGEST:
        return answer
    digest = hashlib.sha256(answer.body).hexdigest()
    return answer._replace(body=answer.body[:LONGEST] + f"... ({len(answer.body)} bytes, {digest})".encode())


def append(path: Path, name: str, recording: Recording) -> None:
    """Add the recording of a world, by "host world": what was recorded before an error is not lost."""
    with path.open("a", encoding="utf-8") as file:
        for title, (operation, answer) in recording.items():
            body = shortened(answer).body.decode("latin-1")
            print(json.dumps([name, operation, title, answer.status, answer.headers, body]), file=file)


def read(path: Path) -> dict[str, Recording]:
    """All recordings of a file, by "host world"."""
    found: dict[str, Recording] = {}
    with path.open(encoding="utf-8") as file:
        for line in file:
            name, operation, title, status, headers, body = json.loads(line)
            pairs: Any = tuple((each, value) for each, value in headers)
            answer = Answer(status, pairs, body.encode("latin-1"))
            found.setdefault(name, {})[title] = Recorded(operation, answer)
    return found
