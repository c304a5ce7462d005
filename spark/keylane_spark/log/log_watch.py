"""Asks Kafka the same again and again: where logs end, and whether the topics are as they were.

The heartbeat asks twice a second, and a query that plans its batches up to a hundred times. librdkafka's
admin client makes objects for every partition of every answer, 36 ms of CPU at 1,000 partitions. Here a
request is encoded once, and an answer with the same bytes as the one before is not parsed: what is idle costs
what its bytes cost.

Each leader answers for itself. One that does not is waited for once, for a second at most, and then not asked
any more: a thread looks for it, and for new leaders, and what it finds replaces what was asked before.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from kafka import errors as kafka_errors

from keylane.adapters.kafka.options import Connection
from keylane.errors import LogUnavailable
from keylane_spark.log.broker_session import BrokerSession, id_text
from keylane_spark.log.broker_socket import BROKER_ERRORS, check, may_pass, words_of
from keylane_spark.log.fetch_options import portable
from keylane_spark.log.kafka_admin import TopicShape
from keylane_spark.log.leader_session import LeaderAnswers, LeaderSession

_LOOK_PAUSES_S = 0.1, 0.5
"""The pauses of the thread that looks for leaders: the first, and the longest."""
_MISSING = {
    kafka_errors.UnknownTopicOrPartitionError.errno,
    kafka_errors.UnknownTopicIdError.errno,
}


class LogWatch:
    """Watches for one query. Several threads may use it, one at a time.

    `connection` returns how Kafka is reached, with the present secrets. `counts`: the partition counts of the
    topics whose ends are asked for. `topics`: those of which `topics` asks.
    """

    def __init__(
        self,
        connection: Callable[[], Connection],
        counts: Mapping[str, int],
        topics: Collection[str],
        timeout_s: float = 10.0,
    ) -> None:
        """`timeout_s`: how long finding the brokers may take."""
        self._connection = connection
        self._counts = counts
        self._topics = topics
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._session: LeaderSession | None = None
        self._closed = threading.Event()
        self._is_looking = False
        self._is_doubted = False
        self._failure: Exception | None = None
        self._levels: set[bool] = set()
        self._seen = memoryview(b"")
        self._shapes: dict[str, TopicShape] = {}

    def ends(self, *, committed: bool = False) -> LeaderAnswers:
        """The next offset of each partition, and the epoch of the leader that says so.

        It is the high watermark, or with `committed` the last stable offset. Raises LogUnavailable where no
        broker can be asked, or for what will not pass.
        """
        with self._lock, self._translated():
            self._levels.add(committed)
            session = self._open()
            found = session.ends(committed=committed)
            self._look_for()
            self._raise_failure(session)
            return found

    def topics(self) -> Mapping[str, TopicShape]:
        """The topics that there are: another object only where anything of them may have changed.

        Raises LogUnavailable where no broker answers.
        """
        with self._lock, self._translated():
            self._seen, response = self._open().topics(self._seen)
            if response is not None:
                self._shapes = _shapes_of(response)
            self._look_for()
            return self._shapes

    def doubt(self) -> None:
        """Look for the leaders again: one that has answered may not lead any more."""
        with self._lock:
            self._is_doubted = True
            self._look_for()

    def close(self) -> None:
        """Close the connections; nothing may be asked any more."""
        self._closed.set()
        with self._lock:
            self._drop()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except BROKER_ERRORS as error:
            raise LogUnavailable(f"Kafka can't be asked: {words_of(error)}", 2) from error
        except BaseException:
            # What was sent has no reader: its answer would be taken for another one.
            self._drop()
            raise

    def _raise_failure(self, session: LeaderSession) -> None:
        """Raise what a leader, or the thread that looks for them, has met and will not pass."""
        failure = session.failure or self._failure
        session.failure = self._failure = None
        if failure is not None:
            raise failure

    def _open(self) -> LeaderSession:
        if self._session is None:
            self._session = self._new_session()
        return self._session

    def _new_session(self) -> LeaderSession:
        broker = BrokerSession(portable(self._connection()), self._timeout_s)
        return LeaderSession(broker, self._counts, self._topics)

    def _drop(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None

    def _look_for(self) -> None:
        """Start the thread that looks for leaders, if it is needed. The lock is held."""
        is_away = self._session is not None and self._session.away
        if (is_away or self._is_doubted) and not self._is_looking and not self._closed.is_set():
            self._is_looking = True
            threading.Thread(target=self._look, name="leaders", daemon=True).start()

    def _look(self) -> None:
        pause_s, longest_s = _LOOK_PAUSES_S
        while True:
            try:
                self._look_once()
            except Exception as error:  # noqa: BLE001 (who asks next meets what will not pass)
                if not (isinstance(error, BROKER_ERRORS) and may_pass(error)):
                    self._failure = error
            with self._lock:
                session = self._session
                is_over = self._closed.is_set() or session is None
                if is_over or not (self._is_doubted or (session and session.away)):
                    self._is_looking = False
                    return
            self._closed.wait(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    def _look_once(self) -> None:
        """Ask all leaders over a session of its own; it replaces the one in use if more of them answer."""
        found = self._new_session()
        try:
            for committed in sorted(self._levels):
                found.ends(committed=committed)
            with self._lock:
                before = self._session
                if before is None or self._closed.is_set():
                    return
                more = len(before.away) - len(found.away)
                if more > 0 or (self._is_doubted and more == 0):
                    self._session, found = found, before
                    self._is_doubted = False
        finally:
            found.close()


def _shapes_of(response: Any) -> dict[str, TopicShape]:
    """The topics of a response that has them. Raises KafkaError."""
    found = {}
    for topic in response.topics:
        if topic.error_code in _MISSING:
            continue
        check(topic.error_code)
        found[topic.name] = TopicShape(id_text(getattr(topic, "topic_id", None)), len(topic.partitions))
    return found
