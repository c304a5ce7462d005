"""A topic's layout, its writer's record, its epochs and its stray totals, as the writer stores them.

Every change of a record names the epoch of its writer, and is refused where a newer writer has begun.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from keylane import routing
from keylane.adapters.redis.cluster import Cluster, Node
from keylane.adapters.redis.error_replies import ResponseError
from keylane.adapters.redis.errors import translate_redis_errors
from keylane.adapters.redis.resp import encode_command
from keylane.errors import CorruptState
from keylane.model.records import Layout
from keylane.ports import Clock, Deadline
from keylane.state import codec, redis_keys
from keylane.state.windows import state_name, view_of_state
from keylane_spark.lanes import function_library as library
from keylane_spark.lanes.dictionaries import DictionaryStore
from keylane_spark.lanes.function_library import DEFAULTS, CallRefused, WriteOptions
from keylane_spark.lanes.lane import lanes_of
from keylane_spark.lanes.record_copies import SLOTS, RecordCopies
from keylane_spark.lanes.topic_record import TopicRecord

T = TypeVar("T")

TOTALS_SLOT = routing.key_slot(redis_keys.strays_key(""))
"""The slot of all stray totals."""
_TIMEOUT_MS = 5000
_KEYS_PER_CALL = 1000
_STOPPED_S = 120
"""A reason outlives its job for so long: a view that was taken from the config must not stay listed."""
_MOST_REASON_BYTES = 2000


class LayoutStore:
    """Layouts, records and epochs in the cluster. All methods raise StateUnavailable. Not thread-safe.

    `options`: how many replicas must have a change; `notify` gets a line when they do not.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        options: WriteOptions = DEFAULTS,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._copies = RecordCopies(cluster, clock, options, notify)
        self.dictionaries = DictionaryStore(self._copies)

    def get(self, topic: str) -> Layout | None:
        """The topic's layout; None when it has none yet. Raises CorruptState."""
        record = self.record(topic)
        if record and record.revision:
            return record.serving
        key = redis_keys.layout_key(topic)
        data = self._command(key, b"GET", key)
        return None if data is None else _decoded(key, data, codec.decode_layout)

    def record(self, topic: str) -> TopicRecord | None:
        """The newest of the topic's records; None when it has none. Raises CorruptState if none is valid."""
        found = self._copies.call(
            lambda tag: encode_command(b"GET", redis_keys.record_key(topic, tag)), writes=False
        ).items()
        records, faults = [], []
        for tag, data in found:
            if data is not None:
                try:
                    records.append(_decoded(redis_keys.record_key(topic, tag), data, TopicRecord.from_json))
                except CorruptState as error:
                    faults.append(error)
        if faults and not records:
            raise faults[0]
        return max(records, key=lambda record: record.version, default=None)

    def change(
        self, topic: str, epoch: int, *, layout: Layout | None = None, record: TopicRecord | None = None
    ) -> None:
        """Set what is given, both at once, in each copy. Raises Fenced where a newer epoch has begun.

        A layout must reach the copy that readers go by. The layout of a record (`serving`) is set too, so
        that each copy is complete.
        """
        stored = layout or (record.serving if record else None)
        arguments = (
            b"%d" % epoch,
            codec.encode_layout(stored) if stored else b"",
            record.to_json() if record else b"",
        )
        with _refusals(topic, epoch):
            self._copies.call(
                lambda tag: encode_command(b"FCALL", library.LAYOUT, b"3", *_keys(topic, tag), *arguments),
                for_readers=layout is not None,
            )
        if layout:
            self._list_name(topic, b"ZADD", b"0")

    def next_epoch(self, topic: str, expected: int = -1, above: int = 0, run: str = "") -> int:
        """Return a new epoch: higher than all earlier ones of the topic, and than `above`.

        `expected`: the epoch that the caller holds, -1 at its first start; `run`: the caller's name. Raises
        Fenced if another run has taken a newer epoch: a writer that was replaced can't take over from its
        successor.
        """
        with _refusals(topic, expected):
            epochs = self._copies.call(lambda tag: _take(topic, tag, expected, above, run))
            epoch = max(map(int, epochs.values()))
            for tag, own in epochs.items():
                if int(own) < epoch:
                    self._copies.call_one(tag, _take(topic, tag, expected, epoch - 1, run))
        return epoch

    def repair(self, record: TopicRecord, topic: str, epoch: int, run: str) -> list[str]:
        """Write the record again where a copy lacks it or has an older one; returns the tags of such copies.

        Raises Fenced where a newer writer has begun.
        """
        data, layout = record.to_json(), codec.encode_layout(record.serving) if record.serving else b""
        repaired = []
        with _refusals(topic, epoch):
            for tag in SLOTS:
                keys = _keys(topic, tag)
                counter, *stored = self._copies.call_one(tag, encode_command(b"MGET", *keys))
                if int((counter or b"0").partition(b" ")[0]) < epoch:
                    self._copies.call_one(tag, _take(topic, tag, epoch, epoch - 1, run))
                if stored == [layout or stored[0], data]:
                    continue
                arguments = b"%d" % epoch, layout, data
                self._copies.call_one(tag, encode_command(b"FCALL", library.LAYOUT, b"3", *keys, *arguments))
                repaired.append(tag.decode())
        if record.serving:
            self._list_name(topic, b"ZADD", b"0")
        return repaired

    def hide(self, topic: str, epoch: int) -> None:
        """Remove the layout that readers go by, in each copy. Raises Fenced."""
        self._drop(topic, epoch, redis_keys.layout_key)

    def forget(self, topic: str, epoch: int) -> None:
        """Remove all records of a topic that has no generation any more. Raises Fenced."""
        own = redis_keys.layout_key, redis_keys.record_key, redis_keys.strays_key, redis_keys.dictionaries_key
        self._drop(topic, epoch, *own)

    def _drop(self, topic: str, epoch: int, *names: Callable[[str, bytes], bytes]) -> None:
        with _refusals(topic, epoch):
            self._copies.call(
                lambda tag: encode_command(
                    *(b"FCALL", library.FORGET, b"%d" % (len(names) + 1), redis_keys.epoch_key(topic, tag)),
                    *(name(topic, tag) for name in names),
                    b"%d" % epoch,
                ),
                for_readers=True,
            )
        self._list_name(topic, b"ZREM")

    def _list_name(self, topic: str, command: bytes, *score: bytes) -> None:
        """Add a topic or view to the list of its kind, or remove it. A name without a layout counts not."""
        view = view_of_state(topic)
        key_of, name = (redis_keys.topics_key, topic) if view is None else (redis_keys.views_key, view)
        self._copies.call(lambda tag: encode_command(command, key_of(tag), *score, name.encode()))

    def note_stopped(self, view: str, reason: str) -> None:
        """Store why a view does not run, for a while, and list it; an empty reason removes what is stored."""
        if not reason:
            self._copies.call(lambda tag: encode_command(b"DEL", redis_keys.stopped_key(view, tag)))
            return
        stored = reason.encode()[:_MOST_REASON_BYTES]
        self._copies.call(
            lambda tag: encode_command(
                b"SET", redis_keys.stopped_key(view, tag), stored, b"EX", b"%d" % _STOPPED_S
            )
        )
        self._list_name(state_name(view), b"ZADD", b"0")

    def free_generation(self, layout: Layout, first: int) -> tuple[Layout, list[int]]:
        """The layout with the first generation, from `first` on, that no lane of it is in use by.

        And the generations skipped: their lanes were left behind when the topic's records were lost.
        """
        used: list[int] = []
        while self._is_used(candidate := replace(layout, generation=first + len(used))):
            used.append(candidate.generation)
        return candidate, used

    def _is_used(self, layout: Layout) -> bool:
        """Whether the generation has a lane, of this layout or another, in any slot of the layout's lanes."""
        deadline = Deadline.after_ms(_TIMEOUT_MS, self._clock)
        with translate_redis_errors():
            self._cluster.refresh(deadline)
            by_node: dict[Node, list[bytes]] = {}
            for lane in lanes_of(layout):
                tag = routing.hash_tag(lane.slot)
                opened = redis_keys.writer_key(tag, layout.topic, layout.generation)
                command = encode_command(b"EXISTS", lane.watermark_key, opened)
                by_node.setdefault(self._cluster.primary(lane.slot), []).append(command)
            for node, commands in by_node.items():
                for first in range(0, len(commands), _KEYS_PER_CALL):
                    some = commands[first : first + _KEYS_PER_CALL]
                    if any(self._cluster.execute(node, some, deadline)):
                        return True
        return False

    def add_strays(self, layout: Layout, counts: Mapping[str, int]) -> None:
        """Add to the stray totals of a topic's generation, at least once: a retried call counts again."""
        key = redis_keys.strays_key(layout.topic)
        for name, count in counts.items():
            self._command(key, b"HINCRBY", key, b"%d.%b" % (layout.generation, name.encode()), b"%d" % count)

    def strays(self, layout: Layout) -> dict[str, int]:
        """The totals of a topic's generation, by the names that `add_strays` was given."""
        key = redis_keys.strays_key(layout.topic)
        flat = self._command(key, b"HGETALL", key)
        prefix = f"{layout.generation}."
        names = [name.decode() for name in flat[::2]]
        return {
            name.removeprefix(prefix): int(count)
            for name, count in zip(names, flat[1::2], strict=True)
            if name.startswith(prefix)
        }

    def forget_strays(self, topic: str, generation: int) -> None:
        """Remove the totals of a generation."""
        key = redis_keys.strays_key(topic)
        names = [name for name in self._command(key, b"HKEYS", key) if name.startswith(b"%d." % generation)]
        if names:
            self._command(key, b"HDEL", key, *names)

    def _command(self, key: bytes, *words: bytes) -> Any:
        """The reply to a plain command, which is tried once: the callers have their own retries."""
        deadline = Deadline.after_ms(_TIMEOUT_MS, self._clock)
        with translate_redis_errors():
            if not self._cluster.nodes:
                self._cluster.refresh(deadline)
            primary = self._cluster.primary(routing.key_slot(key))
            try:
                (reply,) = self._cluster.execute(primary, [encode_command(*words)], deadline)
            except ResponseError:
                # The slot map is outdated or a failover is under way: the next attempt has a new map.
                self._cluster.refresh(deadline)
                raise
            return reply


def _keys(topic: str, tag: bytes) -> tuple[bytes, bytes, bytes]:
    return (
        redis_keys.epoch_key(topic, tag),
        redis_keys.layout_key(topic, tag),
        redis_keys.record_key(topic, tag),
    )


def _take(topic: str, tag: bytes, expected: int, above: int, run: str) -> bytes:
    arguments = b"%d" % expected, b"%d" % above, run.encode()
    return encode_command(b"FCALL", library.EPOCH, b"1", redis_keys.epoch_key(topic, tag), *arguments)


def _decoded(key: bytes, data: bytes, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(data)
    except codec.CodecError as error:
        raise CorruptState(key.decode(), str(error)) from error


@contextmanager
def _refusals(topic: str, epoch: int) -> Iterator[None]:
    """Raise the error of the library's refusals."""
    try:
        yield
    except CallRefused as refused:
        raise refused.for_lane(topic, redis_keys.epoch_key(topic), epoch) from refused
