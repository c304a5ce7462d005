"""One librdkafka producer for all requests of the process.

A thread serves librdkafka's callbacks. It only collects the reports; the loop takes all that have come, and
lets the requests go on whose records are all reported. A request waits for its own records alone: `flush`,
which waits for everybody's, is never called. Nor is `purge`, which would fail everybody's: a record that is
not sent in time expires by `message.timeout.ms`. Only where librdkafka has ended with a fatal error is
everything purged, and every request that waits goes on with that error.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from keylane.adapters.kafka.errors import LOCAL_TIMED_OUT, is_fatal
from keylane_server.greenlets import Suspension, call_in_thread, pause_s
from keylane_server.shared_calls import SharedCall
from keylane_server.time_limits import TimeLimits

POLL_S = 0.1
ROOM_S = 0.002
"""How long a request waits before it looks again for room in a full queue."""
LOOK_S = 0.01
"""How late the time limit of a wait for reports may be noticed."""
LAST_REPORTS_S = 60.0
"""How long a client that was replaced is kept for requests that use it: longer than any of them may take."""


_log = logging.getLogger("keylane.kafka")


class SharedClient:
    """A producer with its thread. Make it in the loop. `limits`: for the waits of its requests."""

    def __init__(self, producer: Any, executor: Executor) -> None:
        self._producer = producer
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._reports: deque[tuple[RequestClient, Callable[..., None], Any, Any]] = deque()
        self._is_taking_due = False
        self._lock = threading.Lock()
        self._metadata: dict[str | None, SharedCall[Any]] = {}
        self._is_closed = threading.Event()
        self._unreported = 0
        self.waiting: set[RequestClient] = set()
        self.fatal: KafkaError | None = None
        """The error that has ended librdkafka's client: it sends nothing any more."""
        self.limits = TimeLimits(LOOK_S)
        self._thread = threading.Thread(target=self._serve_callbacks, name="keylane-kafka", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Return how many records wait to be sent, or for their report."""
        return self._unreported

    def of_request(self) -> "RequestClient":
        """Return the client as one request uses it."""
        return RequestClient(self)

    def close(self) -> None:
        """End the thread once no request can use the client any more."""
        self._is_closed.set()

    def produce(self, request: "RequestClient", arguments: tuple[Any, ...], more: dict[str, Any]) -> None:
        """Hand a record over, as confluent-kafka's `produce`."""
        if self.fatal is not None:
            raise KafkaException(self.fatal)
        more["on_delivery"] = partial(self._collect, request, more["on_delivery"])
        self._producer.produce(*arguments, **more)
        self._unreported += 1

    def list_topics(self, topic: str | None, timeout_s: float) -> Any:
        """Return metadata; requests that want the same at the same time share the call."""
        call = self._metadata.setdefault(topic, SharedCall())
        fetch = partial(call_in_thread, self._executor, self._producer.list_topics, topic, timeout_s)
        try:
            return call.join(fetch, timeout_s + POLL_S)
        except TimeoutError as error:
            raise KafkaException(KafkaError(LOCAL_TIMED_OUT)) from error
        finally:
            if call.is_idle:
                self._metadata.pop(topic, None)

    def _collect(
        self, request: "RequestClient", report: Callable[..., None], error: Any, message: Any
    ) -> None:
        """Keep a report for the loop: librdkafka's callback, in the thread."""
        self._reports.append((request, report, error, message))
        with self._lock:
            if self._is_taking_due:
                return
            self._is_taking_due = True
        self._loop.call_soon_threadsafe(self._take_reports)

    def _take_reports(self) -> None:
        with self._lock:
            self._is_taking_due = False
        complete: list[RequestClient] = []
        reports = self._reports
        while reports:
            request, report, error, message = reports.popleft()
            self._unreported -= 1
            report(error, message)
            request.unreported -= 1
            if not request.unreported:
                complete.append(request)
        for request in complete:
            request.resume()

    def _serve_callbacks(self) -> None:
        while not self._is_closed.is_set():
            self._poll()
        # A request may be about to use it.
        until_s = time.monotonic() + LAST_REPORTS_S
        while time.monotonic() < until_s:
            self._poll()

    def _poll(self) -> None:
        """Let librdkafka call back. Whatever it raises, the thread goes on: without it no write ends."""
        try:
            self._producer.poll(POLL_S)
        except KafkaException as error:
            if is_fatal(error.args[0]):
                self._producer.purge(in_queue=True, in_flight=True, blocking=False)
                self._loop.call_soon_threadsafe(self._end, error.args[0])
            else:
                _log.exception("Kafka's client has raised an error in its callbacks")
        except Exception:  # noqa: BLE001 (the thread must not end)
            _log.exception("a callback of Kafka's client has failed")

    def _end(self, error: KafkaError) -> None:
        self.fatal = self.fatal or error
        for request in list(self.waiting):
            request.resume()


class RequestClient:
    """The producer as one request uses it: what librdkafka's own would block for suspends the request."""

    __slots__ = ("_shared", "_waiting", "unreported")

    def __init__(self, shared: SharedClient) -> None:
        self._shared = shared
        self._waiting: Suspension[None] | None = None
        self.unreported = 0

    def produce(self, *arguments: Any, **more: Any) -> None:
        """Hand a record over."""
        self._shared.produce(self, arguments, more)
        self.unreported += 1

    def flush(self, timeout_s: float) -> int:
        """Wait until this request's records are reported; return how many are not.

        Raises KafkaException once librdkafka's client has ended.
        """
        shared = self._shared
        if self.unreported and shared.fatal is None:
            waiting = self._waiting = Suspension()
            shared.limits.begin(self, timeout_s)
            shared.waiting.add(self)
            try:
                waiting.wait()
            finally:
                shared.waiting.discard(self)
                shared.limits.end(self)
                self._waiting = None
        if self.unreported and shared.fatal is not None:
            raise KafkaException(shared.fatal)
        return self.unreported

    def give_up(self) -> None:
        """Let the request go on without all reports: its time is over."""
        self.resume()

    def resume(self) -> None:
        """Let the request go on, if it waits."""
        if self._waiting is not None:
            self._waiting.resume(None)

    def poll(self, timeout_s: float) -> int:
        """Wait a moment for room in the queue."""
        if timeout_s > 0:
            pause_s(min(timeout_s, ROOM_S))
        return 0

    def purge(self, **_: Any) -> None:
        """Do nothing: the queue has other requests' records too."""

    def list_topics(self, topic: str | None, timeout: float) -> Any:
        """Return metadata."""
        return self._shared.list_topics(topic, timeout)
