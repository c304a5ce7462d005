"""What one run of the job holds of its topics: an epoch for each, and the right to change their records."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from keylane.errors import Fenced, KeylaneError, called
from keylane.model.records import Layout
from keylane.ports import Clock
from keylane_spark.lanes.cluster import Cluster, RedisSettings
from keylane_spark.lanes.function_library import DEFAULTS, WriteOptions
from keylane_spark.lanes.layout_store import LayoutStore
from keylane_spark.lanes.topic_record import Lineage, Owner, TopicRecord

_REPAIR_PERIOD_S = 5.0


class Ownership:
    """Epochs and records of topics. Thread-safe.

    It remembers what it stored, so that it continues with the same generations when Redis was emptied, and
    knows where the state had begun. `options`: how many replicas must have a change; `notify` gets a line
    when they do not.
    """

    def __init__(
        self,
        redis: RedisSettings,
        clock: Clock,
        options: WriteOptions = DEFAULTS,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._lock = threading.RLock()
        self._clock = clock
        self._cluster = Cluster(redis)
        self._store = LayoutStore(self._cluster, clock, options, notify)
        self._since_ms = clock.now_ms()
        self._held: dict[str, int] = {}
        self._run = uuid.uuid4().hex
        self._records: dict[str, TopicRecord] = {}
        self._revision = 0
        self.has_begun = False
        """Whether this run has opened its topics: from then on it must not take over from a newer writer."""

    def take(self, topics: Iterable[str], above: int = 0) -> int:
        """Take one epoch for all these topics, higher than `above` and than the counter of each.

        Raises Fenced where a newer writer has begun since this run took its last epoch.
        """
        with self._lock:
            taken = {topic: self._take(topic, above) for topic in topics}
            epoch = max(taken.values())
            for topic, own in taken.items():
                if own < epoch:
                    self._take(topic, epoch - 1)
            return epoch

    def _take(self, topic: str, above: int) -> int:
        held = self._held.get(topic, -1)
        # A run's first epoch is above the time of its start in ms. So even when Redis was emptied, and the
        # counter with it, an older run that wakes up can't take over from the one that replaced it.
        epoch = self._store.next_epoch(topic, held, max(above, held, self._since_ms), self._run)
        self._held[topic] = epoch
        return epoch

    def holds(self, record: TopicRecord) -> bool:
        """Whether this run is the owner that the record names."""
        with self._lock:
            return record.owner.epoch in self._held.values() and record.owner.pid == os.getpid()

    def owner(self, epoch: int) -> Owner:
        """This run, as records name it."""
        return Owner(socket.gethostname(), os.getpid(), self._since_ms, epoch)

    def now_ms(self) -> int:
        """The time, in ms since 1970."""
        return self._clock.now_ms()

    def epoch(self, topic: str) -> int:
        """The epoch that this run holds."""
        with self._lock:
            return self._held[topic]

    def record(self, topic: str) -> TopicRecord | None:
        """The topic's record as it is stored."""
        with self._lock:
            return self._store.record(topic)

    def known(self, topic: str) -> tuple[Layout | None, TopicRecord | None]:
        """The layout that readers go by and the topic's record, as this run stored them if they are lost."""
        with self._lock:
            stored, last = self._store.record(topic), self._records.get(topic)
            if last and (stored is None or last.version > stored.version):
                return last.serving, last
            return self._store.get(topic), stored

    def free(self, layout: Layout, taken: Iterable[int]) -> tuple[Layout, list[int]]:
        """The layout with the first unused generation above `taken`, and the used ones that were skipped."""
        with self._lock:
            return self._store.free_generation(layout, max(taken, default=0) + 1)

    def change(self, topic: str, record: TopicRecord, *, layout: Layout | None = None) -> None:
        """Store the record and, at once with it, the layout that readers must switch to. Raises Fenced.

        Without `layout` the readers' layout is written again as it is, where it can be reached.
        """
        with self._lock:
            self._revision += 1
            record = replace(record, serving=layout or record.serving, revision=self._revision)
            self._store.change(topic, self._held[topic], layout=layout, record=record)
            self._records[topic] = record

    def repair(self) -> list[str]:
        """Write again what copies of this run's records lack; returns a line for each. Raises Fenced."""
        lines = []
        for topic in sorted(self._records):
            with self._lock:
                if record := self._records.get(topic):
                    repaired = self._store.repair(record, topic, self._held[topic], self._run)
                    lines += [
                        f"{called(topic)}: its records in {{{tag}}} are written again" for tag in repaired
                    ]
                    lines += [
                        f"{called(topic)}: its dictionaries in {{{tag}}} are written again"
                        for tag in self._repair_dictionaries(topic, record)
                    ]
        return lines

    def _repair_dictionaries(self, topic: str, record: TopicRecord) -> list[str]:
        """Write again what copies lack of the dictionaries in use; returns the tags of such copies."""
        layouts = [each for each in (record.serving, record.building) if each]
        used = {each.generation for each in layouts if each.options.compression != "none"}
        return self._store.dictionaries.repair(topic, used)[1] if used else []

    def switch(self, topic: str, old: int, layout: Layout) -> None:
        """Direct readers to a layout, and put the old generation on the list for removal. Raises Fenced."""
        with self._lock:
            record = self._store.record(topic)
            if record:
                self.change(topic, record.switched(old), layout=layout)

    def note_lineages(self, topic: str, lineages: tuple[Lineage, ...]) -> None:
        """Store the leader epochs of the log that the state is read from. Raises Fenced."""
        with self._lock:
            record = self._store.record(topic)
            if record and record.lineages != lineages:
                self.change(topic, record=replace(record, lineages=lineages))

    def drop_building(self, topic: str) -> None:
        """Put the generation that is being built on the list for removal. Raises Fenced."""
        with self._lock:
            record = self._store.record(topic)
            if record and record.building:
                self.change(topic, replace(record.removing([record.building.generation]), building=None))

    def note_removed(self, topic: str, generation: int) -> None:
        """Take a generation from the list for removal. Raises Fenced."""
        with self._lock:
            record = self._store.record(topic)
            if record:
                self.change(topic, record.removed(generation))

    def note_leftovers(self, topic: str, found: Collection[int]) -> TopicRecord | None:
        """Put generations that the record does not name on its list for removal. Raises Fenced.

        Returns the record; None if this run has none.
        """
        with self._lock:
            record = self._store.record(topic)
            if record is None or not self.holds(record):
                return None
            if leftovers := set(found) - record.generations:
                record = record.removing(leftovers)
                self.change(topic, record)
            return record

    def begin_forgetting(self, topic: str, found: Collection[int]) -> bool:
        """Take a topic from readers, and list all its generations for removal; False if there is nothing.

        `found`: generations that have lanes. The record names none to continue with from then on.
        """
        with self._lock:
            layout, record = self.known(topic)
            if record is None and layout is None and not found:
                return False
            epoch = self.take([topic])
            self._store.hide(topic, epoch)
            generations = {*found, *(record.generations if record else ())}
            if layout:
                generations.add(layout.generation)
            topic_id = record.topic_id if record else ""
            self.change(topic, TopicRecord(topic_id, (), self.owner(epoch)).removing(generations))
            return True

    def end_forgetting(self, topic: str) -> None:
        """Remove the records of a topic whose generations are removed. Raises Fenced."""
        with self._lock:
            self._store.forget(topic, self._held[topic])
            self._records.pop(topic, None)

    def add_strays(self, layout: Layout, counts: Mapping[str, int]) -> None:
        """Add to the stray totals of the layout's generation."""
        with self._lock:
            self._store.add_strays(layout, counts)

    def has_strays(self, layout: Layout) -> bool:
        """Whether the totals of the layout's generation have any stray."""
        with self._lock:
            return any(self._store.strays(layout).values())

    def forget_generation(self, topic: str, generation: int) -> None:
        """Remove the stray totals and the dictionaries of a generation, whose lanes are removed."""
        with self._lock:
            self._store.forget_strays(topic, generation)
            self._store.dictionaries.forget(topic, generation)

    def successor(self, fenced: Fenced) -> str:
        """Who has taken over, where its record says so."""
        topic = fenced.lane.rpartition("/")[0] or fenced.lane
        try:
            record = self.record(topic)
        except KeylaneError:
            record = None
        if record is None or record.owner.epoch < fenced.newer_epoch:
            return "a writer that has not recorded its name yet"
        owner = record.owner
        return f"process {owner.pid} on {owner.host}, epoch {owner.epoch}"

    def note_stopped(self, view: str, reason: str) -> None:
        """Store why a view does not run, "" once it does. Errors are not raised: the next call stores it."""
        with self._lock, contextlib.suppress(KeylaneError):
            self._store.note_stopped(view, reason)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._cluster.close()


class RecordKeeper:
    """Keeps all copies of the records complete: what one lost, or missed, is written again by its thread.

    `notify` gets a line for each copy that was written again, and one when an error begins: a fence, for
    example, or a shard that is away.
    """

    def __init__(self, ownership: Ownership, notify: Callable[[str], None]) -> None:
        self._ownership = ownership
        self._notify = notify
        self._fault = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="record-keeper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the step in progress."""
        self._stop.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while not self._stop.wait(_REPAIR_PERIOD_S):
            try:
                for line in self._ownership.repair():
                    self._notify(line)
                self._fault = ""
            except Exception as error:  # noqa: BLE001 (the thread goes on: the error may pass)
                if not self._fault:
                    self._notify(f"copies of the topics' records can't be checked: {error}")
                self._fault = str(error)
