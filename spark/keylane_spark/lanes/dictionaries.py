"""Dictionaries of compressed values: where they are in Redis, and which one a process compresses with.

The order of writes:

1. Whoever has enough samples takes the turn to train: nobody else trains for a while.
2. The dictionary is stored, in two of its three copies at least.
3. Values that name it are written.

So a value never names a dictionary that Redis does not have, whenever a process is killed. What it lacks are
dictionaries that a failover took with all their copies: the job writes the copies again from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.resp import encode_command
from keylane.errors import StateUnavailable, called
from keylane.model.records import Layout
from keylane.ports import Clock
from keylane.state import redis_keys
from keylane.state.compression import MOST_DICTIONARIES, hash_id
from keylane_spark.lanes.cluster import RedisSettings
from keylane_spark.lanes.function_library import WriteOptions
from keylane_spark.lanes.record_copies import RecordCopies
from keylane_spark.rows.compression import (
    FEWEST_SAMPLES,
    ColumnCompressor,
    RatioWatch,
    Samples,
    best_of,
    train,
)
from keylane_spark.rows.records import Records

TURN_MS = 10_000
"""How long others wait for who trains: longer than it takes."""
PAUSE_MS = 600_000
"""Between two dictionaries of a generation."""
_AWAITED_S = 2.0
_POLL_S = 0.05
_LOOK_AGAIN_S = 5.0
_AFTER_FAILURE_S = 30.0
"""A batch waits for a look: a shard that is away must not cost each of them its retry budget."""


class DictionaryStore:
    """The dictionaries of topics in Redis. All methods raise StateUnavailable. Not thread-safe.

    It remembers what it has read: what was lost with all its copies is written again, too.
    """

    def __init__(self, copies: RecordCopies) -> None:
        self._copies = copies
        self._seen: dict[str, dict[bytes, bytes]] = {}

    def read(self, topic: str, generation: int) -> dict[int, bytes]:
        """The dictionaries of a generation, by id; each is in two copies at least when this returns."""
        return self.repair(topic, {generation})[0]

    def repair(self, topic: str, generations: Collection[int]) -> tuple[dict[int, bytes], list[str]]:
        """Write again what copies lack of these generations.

        Returns the dictionaries by id, and the tags of such copies.
        """
        replies = self._copies.call(
            lambda tag: encode_command(b"HGETALL", redis_keys.dictionaries_key(topic, tag)), writes=False
        )
        own = tuple(b"%d." % each for each in generations)
        # What is no dictionary of its name is lacking: nobody can read a value that it compresses.
        found: dict[bytes, dict[bytes, bytes]] = {
            tag: {
                name: data
                for name, data in zip(flat[::2], flat[1::2], strict=True)
                if name.startswith(own) and name.endswith(b".%d" % hash_id(data))
            }
            for tag, flat in replies.items()
        }
        known = {name: data for name, data in self._seen.get(topic, {}).items() if name.startswith(own)}
        known |= {name: data for each in found.values() for name, data in each.items()}
        self._seen[topic] = known
        repaired = []
        for tag, each in found.items():
            if lacking := [part for name in known.keys() - each.keys() for part in (name, known[name])]:
                key = redis_keys.dictionaries_key(topic, tag)
                self._copies.call_one(tag, encode_command(b"HSET", key, *lacking))
                repaired.append(tag.decode())
        return {int(name.partition(b".")[2]): data for name, data in known.items()}, repaired

    def add(self, topic: str, generation: int, dictionary: bytes) -> None:
        """Store a dictionary."""
        name = redis_keys.dictionary_field(generation, hash_id(dictionary))
        self._copies.call(
            lambda tag: encode_command(b"HSET", redis_keys.dictionaries_key(topic, tag), name, dictionary)
        )

    def forget(self, topic: str, generation: int) -> None:
        """Remove the dictionaries of a generation, whose values are removed."""
        self._seen.pop(topic, None)
        training = redis_keys.training_key(topic, generation)
        self._copies.call_one(redis_keys.RECORD_TAG, encode_command(b"DEL", training))
        replies = self._copies.call(
            lambda tag: encode_command(b"HKEYS", redis_keys.dictionaries_key(topic, tag)), writes=False
        )
        names = {name for found in replies.values() for name in found if name.startswith(b"%d." % generation)}
        if names:
            self._copies.call(
                lambda tag: encode_command(b"HDEL", redis_keys.dictionaries_key(topic, tag), *names)
            )

    def takes_turn(self, topic: str, generation: int) -> bool:
        """Whether the caller may train a dictionary now; nobody else may for TURN_MS."""
        return self._hold(topic, generation, TURN_MS, b"NX") is not None

    def end_turn(self, topic: str, generation: int) -> None:
        """Let nobody train for PAUSE_MS: there is a dictionary, or none is worth it."""
        self._hold(topic, generation, PAUSE_MS, b"XX")

    def _hold(self, topic: str, generation: int, for_ms: int, unless: bytes) -> object:
        key = redis_keys.training_key(topic, generation)
        return self._copies.call_one(
            redis_keys.RECORD_TAG, encode_command(b"SET", key, b"1", b"PX", b"%d" % for_ms, unless)
        )


@dataclass(slots=True)
class GenerationCompressor:
    """Compresses the values of one generation. Not thread-safe.

    Until there is a dictionary, values are compressed without one. Where Redis can't be asked, they are
    compressed with what is known. `notify` gets a line for each dictionary, and where Redis can't be asked.
    """

    store: DictionaryStore
    layout: Layout
    clock: Clock
    notify: Callable[[str], None]
    _current: ColumnCompressor = field(default_factory=ColumnCompressor)
    _samples: Samples | None = field(default_factory=Samples)
    """Of values for another dictionary; None while the present one is good enough."""
    _watch: RatioWatch = field(default_factory=RatioWatch)
    _look_at_s: float = 0.0
    _rests_until_s: float = 0.0
    _is_trained_for: bool = False
    """Whether it was tried to make a dictionary of these samples."""
    _has_waited: bool = False
    _fault: str = ""

    def compress(self, records: Records) -> Records:
        """Return the records with those values compressed that get shorter by it."""
        if self._samples is not None and self.clock.monotonic_s() >= self._rests_until_s:
            self._samples.add(records.values)
            if self._is_due(self._samples):
                self._look(self._samples)
        compressed, sizes = self._current.compress(records)
        if self._watch.note(sizes) and self._samples is None:
            self._samples, self._is_trained_for = Samples(), False
        return compressed

    def _is_due(self, samples: Samples) -> bool:
        """Whether it is time to look for a dictionary: now and then, and as soon as one can be made."""
        is_enough = len(samples.values) >= FEWEST_SAMPLES and not self._is_trained_for
        return is_enough or (bool(samples.values) and self.clock.monotonic_s() >= self._look_at_s)

    def _look(self, samples: Samples) -> None:
        self._look_at_s = self.clock.monotonic_s() + _LOOK_AGAIN_S
        try:
            self._find(samples)
            self._fault = ""
        except StateUnavailable as error:
            self._rests_until_s = self.clock.monotonic_s() + _AFTER_FAILURE_S
            if not self._fault:
                self.notify(f"{self._title}: dictionaries can't be read or stored: {error}")
            self._fault = str(error)

    def _find(self, samples: Samples) -> None:
        """Take the best dictionary that is stored; where none fits, train one, or wait for who does."""
        topic, generation = self.layout.topic, self.layout.generation
        stored = self.store.read(topic, generation)
        if self._takes_one_of(stored.values(), samples) or len(samples.values) < FEWEST_SAMPLES:
            return
        self._is_trained_for = True
        if len(stored) >= MOST_DICTIONARIES:
            self._go_on_with(self._current)
        elif self.store.takes_turn(topic, generation):
            self._train(samples, stored)
        elif not stored and not self._has_waited:
            self._wait_for_first(samples)

    def _takes_one_of(self, dictionaries: Iterable[bytes], samples: Samples) -> bool:
        """Take the best of these, if that is much better than the present one."""
        others = [each for each in dictionaries if each != self._current.dictionary]
        if not others:
            return False
        best = best_of([self._current, *map(ColumnCompressor, others)], samples)
        if best is self._current:
            return False
        self._go_on_with(best)
        return True

    def _go_on_with(self, compressor: ColumnCompressor) -> None:
        self._current, self._watch, self._samples = compressor, RatioWatch(), None

    def _train(self, samples: Samples, stored: Mapping[int, bytes]) -> None:
        """Make a dictionary and store it, if it is worth it. Others then do not for a while."""
        topic, generation = self.layout.topic, self.layout.generation
        trained = train(samples)
        if trained is not None and hash_id(trained) not in stored:
            before = self._current
            if best_of([before, made := ColumnCompressor(trained)], samples) is made:
                self.store.add(topic, generation, trained)
                self._go_on_with(made)
                self.notify(f"{self._title}: dictionary {len(stored) + 1} for its values, {made.id}")
        self.store.end_turn(topic, generation)
        if self._samples is not None:  # none is worth it: perhaps of later values
            self._samples, self._is_trained_for = Samples(), False
            self._rests_until_s = self.clock.monotonic_s() + PAUSE_MS / 1000

    def _wait_for_first(self, samples: Samples) -> None:
        self._has_waited = True
        until_s = self.clock.monotonic_s() + _AWAITED_S
        while self.clock.monotonic_s() < until_s:
            self.clock.pause_s(_POLL_S)
            stored = self.store.read(self.layout.topic, self.layout.generation)
            if stored:
                self._takes_one_of(stored.values(), samples)
                return

    @property
    def _title(self) -> str:
        return f"{called(self.layout.topic)}, generation {self.layout.generation}"


class Compressors:
    """Compresses the values of topics: a `Compress`, with connections of its own. Not thread-safe.

    They are opened at the first value of a topic with `compression`.
    """

    def __init__(
        self, redis: RedisSettings, options: WriteOptions, clock: Clock, notify: Callable[[str], None]
    ) -> None:
        self._redis = redis
        self._options = options
        self._clock = clock
        self._notify = notify
        self._cluster: Cluster | None = None
        self._of_generations: dict[tuple[str, int], GenerationCompressor] = {}

    def __call__(self, layout: Layout, records: Records) -> Records:
        """Return a layout's records with those values compressed that get shorter by it."""
        if layout.options.compression == "none":
            return records
        return self._of(layout).compress(records)

    def dictionary(self, layout: Layout, dictionary_id: int) -> bytes:
        """Read a dictionary of a layout's generation. Raises StateUnavailable, too where no copy has it."""
        stored = self._of(layout).store.read(layout.topic, layout.generation)
        if dictionary_id not in stored:
            raise StateUnavailable(
                f"the dictionary {dictionary_id} of the values of {called(layout.topic)} is missing in Redis"
            )
        return stored[dictionary_id]

    def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            self._cluster.close()

    def _of(self, layout: Layout) -> GenerationCompressor:
        name = layout.topic, layout.generation
        if name not in self._of_generations:
            self._open(layout)
        return self._of_generations[name]

    def _open(self, layout: Layout) -> None:
        if self._cluster is None:
            self._cluster = Cluster(self._redis)
        own = sorted(generation for topic, generation in self._of_generations if topic == layout.topic)
        for generation in own[:-1]:  # one serves, another one is built beside it
            del self._of_generations[layout.topic, generation]
        store = DictionaryStore(RecordCopies(self._cluster, self._clock, self._options, self._notify))
        opened = GenerationCompressor(store, layout, self._clock, self._notify)
        self._of_generations[layout.topic, layout.generation] = opened
