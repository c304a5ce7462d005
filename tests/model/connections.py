"""The connections of the model's jobs to a real Redis, and what may go wrong with each thing that they send.

A state that is restored has no connections as they were. So what a server keeps of one is kept here: which
keys it watches, and what was sent over it and has not arrived. WATCH notes what a key holds, and EXEC does
nothing where it holds something else. Commands are carried out at once, in the order in which they are sent,
and their replies wait until they are read.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane.adapters.redis.cluster import Cluster, ClusterClient
from keylane.adapters.redis.error_replies import RedisTimeoutError, ResponseError, TryAgainError
from keylane.adapters.redis.resp import encode_command
from keylane.ports import Clock, Deadline
from keylane.state import codec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane.adapters.redis.cluster import Node, RedisSettings

_TIMEOUT_MS = 10_000
_RECORDS = b"keylane"
"""How the hash tags of the topics' records begin."""
CRASH, REFUSED, LATE, UNHEARD = "crash", "refused", "late", "unheard"


class Crash(BaseException):
    """The writer's process ends in the middle of what it does."""


@dataclass(slots=True)
class Fault:
    """What happens to the sending of this number, from 0 on; calls and the parts of transactions count.

    CRASH: the process has ended before it. REFUSED: Redis can't carry it out now, as in a migrating slot.
    LATE: the connection breaks, and what was sent over it arrives when the model says. UNHEARD: it arrives,
    and the connection breaks before the reply.
    """

    kind: str
    at: int

    def meets(self) -> bool:
        """Count a sending; returns whether it is the one."""
        self.at -= 1
        return self.at < 0


class Late(NamedTuple):
    """What was sent over a connection that broke, in order, and what that connection watched."""

    node: Node
    watched: tuple[tuple[bytes, bytes | None], ...]
    sent: tuple[bytes, ...]

    @property
    def epoch(self) -> int:
        """The epoch of whoever has sent it."""
        for _, words in (command for packed in self.sent for command in commands_in(packed)):
            if words[0] == b"FCALL":
                return int(words[4])
            if words[0] == b"MSET":
                return codec.decode_watermark(words[2]).epoch
        return 0

    def is_for(self, tag: bytes) -> bool:
        """Whether it goes to this slot."""
        return any(b"{%b}" % tag in packed for packed in self.sent)


class SharedCluster(Cluster):
    """The real connections, which all jobs of the model share, for only one of them runs at a time.

    `calls`: what changed the lanes of each slot (by its hash tag), in order: calls of the library, and
    transactions. `fault`: what happens to the next job that sends; None: nothing, or it has.
    `late`: what has not arrived yet. `traffic` counts what was sent: while it stays, so do the keys.
    """

    def __init__(self, settings: RedisSettings) -> None:
        super().__init__(settings)
        self.calls: dict[bytes, tuple[bytes, ...]] = {}
        self.fault: Fault | None = None
        self.late: Late | None = None
        self.traffic = 0
        self.refresh(self.deadline())

    @staticmethod
    def deadline() -> Deadline:
        """The deadline of an exchange that begins now."""
        return Deadline.after_ms(_TIMEOUT_MS, Clock())

    def next_fault(self) -> str | None:
        """What happens to what is sent now."""
        if self.fault is None or not self.fault.meets():
            return None
        kind, self.fault = self.fault.kind, None
        if kind == CRASH:
            raise Crash
        return kind

    def carry_out(self, node: Node, watched: dict[bytes, bytes | None], packed: bytes) -> list[Any]:
        """Carry out commands as a connection that watches these keys does; returns their replies."""
        replies: list[Any] = []
        queued: list[tuple[bytes, list[bytes]]] | None = None
        for raw, words in commands_in(packed):
            name = words[0]
            if name == b"WATCH":
                watched[words[1]] = self._get(node, words[1])
                replies.append(b"OK")
            elif name == b"UNWATCH":
                watched.clear()
                replies.append(b"OK")
            elif name == b"MULTI":
                queued = []
                replies.append(b"OK")
            elif name == b"EXEC" and queued is not None:
                replies.append(self._exec(node, watched, queued))
                watched.clear()
                queued = None
            elif queued is not None:
                queued.append((raw, words))
                replies.append(b"QUEUED")
            else:
                replies.append(self._one(node, raw, words))
        return replies

    def arrive(self) -> None:
        """What was sent over a broken connection arrives; nobody reads the replies."""
        late, self.late = self.late, None
        if late:
            watched = dict(late.watched)
            for packed in late.sent:
                self.carry_out(late.node, watched, packed)

    def _exec(
        self, node: Node, watched: dict[bytes, bytes | None], queued: Sequence[tuple[bytes, list[bytes]]]
    ) -> list[Any] | None:
        if any(self._get(node, key) != seen for key, seen in watched.items()):
            return None
        self.traffic += 1
        packed = encode_command(b"MULTI") + b"".join(raw for raw, _ in queued) + encode_command(b"EXEC")
        *_, reply = self.roundtrip(node, packed, len(queued) + 2, self.deadline())
        if isinstance(reply, list):
            # Replicas have a transaction whole, or not at all.
            self._note(queued[0][1][1], packed)
        return reply  # type: ignore[no-any-return]

    def _one(self, node: Node, raw: bytes, words: list[bytes]) -> Any:
        self.traffic += 1
        (reply,) = self.roundtrip(node, raw, 1, self.deadline())
        if words[0] == b"FCALL" and not isinstance(reply, Exception):
            self._note(words[3], raw)
        return reply

    def _get(self, node: Node, key: bytes) -> bytes | None:
        (data,) = self.execute(node, [encode_command(b"GET", key)], self.deadline())
        return data  # type: ignore[no-any-return]

    def _note(self, key: bytes, raw: bytes) -> None:
        tag = tag_of(key)
        if not tag.startswith(_RECORDS):
            self.calls = self.calls | {tag: (*self.calls.get(tag, ()), raw)}


@dataclass
class _Connection:
    """One of a job's. `fate`: LATE or UNHEARD once it is broken, which nobody has noticed yet."""

    watched: dict[bytes, bytes | None] = field(default_factory=dict)
    replies: deque[Any] = field(default_factory=deque)
    fate: str = ""


class JobCluster:
    """A job's own connections; stands for `Cluster`."""

    def __init__(self, shared: SharedCluster) -> None:
        self._shared = shared
        self._open: dict[Node, _Connection] = {}
        self._opened: dict[Node, int] = {}

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self._shared.nodes

    def primary(self, slot: int) -> Node:
        return self._shared.primary(slot)

    def known_primary(self, slot: int) -> Node | None:
        return self._shared.known_primary(slot)

    def primaries(self) -> list[Node]:
        return self._shared.primaries()

    def refresh(self, deadline: Deadline, ask_first: Node | None = None) -> None:
        """The slot map stays as it is."""

    def is_connected(self, node: Node) -> bool:
        return node in self._open

    def connection_number(self, node: Node) -> int:
        return self._opened[node] if node in self._open else 0

    def send(self, node: Node, packed: bytes, deadline: Deadline, reply_count: int = 1) -> Node:  # noqa: ARG002
        if node not in self._open:
            self._open[node] = _Connection()
            self._opened[node] = self._opened.get(node, 0) + 1
        connection, shared = self._open[node], self._shared
        if not connection.fate and is_write(packed):
            fault = shared.next_fault()
            if fault == REFUSED:
                connection.replies.extend(_refusals(packed))
                return node
            if fault == LATE and not has_effect(packed):
                fault = UNHEARD
            connection.fate = fault or ""
            if fault == LATE:
                shared.late = Late(node, tuple(connection.watched.items()), ())
        if connection.fate == LATE and shared.late:
            shared.late = shared.late._replace(sent=(*shared.late.sent, packed))
        else:
            connection.replies.extend(shared.carry_out(node, connection.watched, packed))
        return node

    def receive(self, sent: Node, reply_count: int, deadline: Deadline) -> list[Any]:
        return [self.receive_next(sent, deadline) for _ in range(reply_count)]

    def receive_next(self, node: Node, deadline: Deadline) -> Any:  # noqa: ARG002
        connection = self._open[node]
        if connection.fate:
            self.drop(node)
            raise RedisTimeoutError("the model has broken the connection")
        return connection.replies.popleft()

    roundtrip = ClusterClient.roundtrip
    execute = ClusterClient.execute

    def drop(self, node: Node) -> None:
        self._open.pop(node, None)

    abandon = drop

    def close(self) -> None:
        self._open.clear()

    def watched(self) -> dict[bytes, bytes | None]:
        """What the connections watch: keys, and what they held."""
        return {key: seen for connection in self._open.values() for key, seen in connection.watched.items()}


def tag_of(key: bytes) -> bytes:
    return key[1 : key.index(b"}")]


def is_write(packed: bytes) -> bool:
    """Whether this is a call of the library, or a part of a transaction."""
    return packed.split(b"\r\n", 3)[2] in (b"FCALL", b"MULTI", b"WATCH", b"UNWATCH")


def has_effect(packed: bytes) -> bool:
    """Whether it may change anything."""
    return packed.split(b"\r\n", 3)[2] in (b"FCALL", b"MULTI")


def commands_in(packed: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """The commands that these bytes encode, each with its words."""
    at = 0
    while at < len(packed):
        begin, end = at, packed.index(b"\r\n", at)
        count, at = int(packed[at + 1 : end]), end + 2
        words = []
        for _ in range(count):
            end = packed.index(b"\r\n", at)
            size, at = int(packed[at + 1 : end]), end + 2
            words.append(packed[at : at + size])
            at += size + 2
        yield packed[begin:at], words


def _refusals(packed: bytes) -> Iterator[Any]:
    """The replies of a node whose slot migrates."""
    for _, words in commands_in(packed):
        if words[0] == b"EXEC":
            yield ResponseError("EXECABORT Transaction discarded because of previous errors.")
        elif words[0] in (b"UNWATCH", b"MULTI"):
            yield b"OK"
        else:
            yield TryAgainError("later")
