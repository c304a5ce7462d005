"""Judges reads of servers whose data nobody takes away, by the torture's checks: each is as the log says.

Reads of many clients overlap: they are compared with the log alone. Those of a reader with a number follow
each other, and none of them may go back behind one before it.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.torture.answers import Answers
from tests.torture.checks import Facts, ReaderCheck
from tests.torture.oracle import Acknowledged
from tests.torture.reading import Seen
from tests.torture.sources import SERVER

from keylane.errors import KeylaneError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.replies import Reply
    from tests.torture.oracle import Log
    from tests.torture.schedule import Shape
    from tests.torture.sources import Found

    from keylane.model.records import Layout, Position


NOBODY = 0
"""The number of reads that may overlap."""


class Undisturbed:
    """What checks ask of a stack, where no trouble excuses a read: its shards are all one."""

    cluster = SimpleNamespace(shards=1)
    moves = ()

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self.stripes = {name: {shape.stripes} for name, shape in shapes.items()}

    def shard_of(self, _: int) -> int:
        return 0

    def layouts(self) -> dict[str, Layout]:
        return {}


class Judge:
    """`answers` reads what is to be noted. `acknowledged`: when each write was. `shapes`: by name."""

    def __init__(self, log: Log, shapes: Mapping[str, Shape]) -> None:
        self.log = log
        self.answers = Answers(shapes)
        self.acknowledged = Acknowledged()
        self._facts = Facts(log, self.acknowledged, [], Undisturbed(shapes))  # type: ignore[arg-type]
        self._seen: deque[Seen] = deque()
        self._wrong: deque[str] = deque()
        self._readers: dict[int, ReaderCheck] = {}

    def note(
        self, topic: str, key: bytes, found: Found, reply: Reply, *, reader: int = NOBODY, **more: Any
    ) -> None:
        """Keep a read for the next `check`, which may be going on in another thread. `more`: of `Seen`."""
        seen = Seen(
            reader,
            topic,
            key,
            reply.began_ms / 1000,
            reply.ended_ms / 1000,
            found.answer,
            None,
            ended_ms=reply.ended_ms,
            exact=found.is_exact,
            source=SERVER,
            is_of_lane=found.is_of_lane,
            **more,
        )
        self._seen.append(seen)

    def note_latest(
        self,
        topic: str,
        key: bytes,
        reply: Reply,
        *,
        waited_for: Position | None = None,
        has_age: bool = True,
        reader: int = NOBODY,
    ) -> None:
        """Keep a read of one key. `has_age`: the server has this machine's clock, so that its ages count."""
        try:
            found = self.answers.latest(topic, key, reply)
        except KeylaneError as error:
            self._wrong.append(f"{topic}/{key.decode()}: {error}")
            return
        if not has_age:
            watermark = found.answer.watermark._replace(complete_as_of_ms=0)
            found = found._replace(answer=found.answer._replace(watermark=watermark))
        self.note(topic, key, found, reply, waited_for=waited_for, reader=reader)

    def check(self) -> list[str]:
        """Read the log to its present end; return what is wrong with the reads since the last call."""
        taken = [self._seen.popleft() for _ in range(len(self._seen))]
        wrong = [self._wrong.popleft() for _ in range(len(self._wrong))]
        self.log.read_on()
        for seen in taken:
            check = self._readers.setdefault(seen.reader, ReaderCheck(self._facts))
            wrong += check.check_any(seen)
            if seen.reader == NOBODY:
                del self._readers[NOBODY]
        return wrong
