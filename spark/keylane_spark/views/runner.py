"""Runs the views beside the topics: each in its own thread, with its own query, restarted after errors."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace

from keylane.errors import (
    EngineEnded,
    Fenced,
    KeylaneError,
    LaneBehind,
    TopicChanged,
    Unavailable,
    UnknownTopic,
)
from keylane.state.windows import state_name
from keylane_spark.context import JobContext
from keylane_spark.generations.ownership import Ownership
from keylane_spark.lanes.cluster import Cluster
from keylane_spark.lanes.view_lanes import ViewLanes
from keylane_spark.stream.restarts import RestartPauses, Unexpected, unexpected
from keylane_spark.views.open_view import ViewOpening, open_view
from keylane_spark.views.view_query import ViewQuery

_CHECK_TOPIC_S = 2.0
_NOTE_S = 30.0
_PASSING = (TopicChanged, Unavailable, LaneBehind, UnknownTopic)
"""Errors after which a view opens its lanes again."""


class Views:
    """All views of the config. `sweep` is called when a view has a generation that is to be removed.

    An error that does not pass (corrupt state, invalid SQL) stops its view alone, until the job's next start:
    log, metric and `/views/{view}` say why. `failed` is called for a fence, and where Spark has ended: it
    ends the job.
    """

    def __init__(
        self,
        context: JobContext,
        ownership: Ownership,
        stop: threading.Event,
        *,
        sweep: Callable[[str], None],
        failed: Callable[[KeylaneError], None],
    ) -> None:
        self._context = context
        self._ownership = ownership
        self._stop = stop
        self._sweep = sweep
        self._failed = failed
        self._threads = [
            threading.Thread(target=self._run, args=(name,), name=f"view-{name}", daemon=True)
            for name in context.config.views
        ]

    def start(self) -> None:
        """Start a thread for each view."""
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait for all threads, after `stop` was set."""
        for thread in self._threads:
            thread.join(timeout=60)

    def _run(self, name: str) -> None:
        pauses = RestartPauses(self._context, self._stop, f"view {name!r} ")
        context = replace(self._context, say=pauses.say)
        has_begun = False
        while not self._stop.is_set():
            try:
                pauses.begin()
                opening = open_view(context, self._ownership, name, has_begun=has_begun)
                has_begun = True
                self._ownership.note_stopped(name, "")
                self._serve(context, opening)
            except TopicChanged as error:
                context.say(f"view {name!r} opens its lanes again: {error}")
            except (Unavailable, LaneBehind, UnknownTopic) as error:
                self._restart(name, pauses, error)
            except (Fenced, EngineEnded) as error:
                self._failed(error)
                return
            except KeylaneError as error:
                context.metrics.count("view", name, stops=1)
                context.say(f"view {name!r} STOPS until the job's next start: {error}")
                self._keep_stopped(name, str(error))
                return
            except Exception as error:  # noqa: BLE001 (of Spark or a client: a view must not end without a word)
                self._restart(name, pauses, unexpected(error))

    def _restart(self, name: str, pauses: RestartPauses, error: KeylaneError) -> None:
        """Wait until the next attempt, and let clients know where it takes more than time to succeed."""
        self._context.metrics.count("view", name, restarts=1)
        self._context.metrics.gauge("view", name, stopped=1)
        if isinstance(error, UnknownTopic):
            self._ownership.note_stopped(name, str(error))
        elif isinstance(error, Unexpected):
            # What Spark or a client says may have an address or a path in it.
            self._ownership.note_stopped(name, "an unexpected error, which the job's log names")
        pauses.pause(error)

    def _keep_stopped(self, name: str, reason: str) -> None:
        """Store and report it again and again, until the job stops."""
        while True:
            self._ownership.note_stopped(name, reason)
            self._context.metrics.gauge("view", name, stopped=1)
            if self._stop.wait(_NOTE_S):
                return

    def _serve(self, context: JobContext, opening: ViewOpening) -> None:
        name = opening.name
        self._sweep(state_name(name))
        for partition in opening.incomplete:
            context.say(
                f"INCOMPLETE: partition {partition} of topic {opening.view.topic!r}: Kafka no longer has "
                f"records that view {name!r} never read"
            )
        query = ViewQuery(context, opening)
        try:
            self._follow(context, query, opening)
        except KeylaneError as error:
            if not isinstance(error, (*_PASSING, Fenced)):
                with contextlib.suppress(KeylaneError):
                    opening.writer.report_stop(str(error))
            raise
        finally:
            query.stop()

    def _follow(self, context: JobContext, query: ViewQuery, opening: ViewOpening) -> None:
        """Run the query until the job stops. Raises whatever ends it before."""
        name = opening.name
        query.start()
        context.say(f"view {name!r} is ready: epoch {opening.epoch}, {len(opening.lanes.lanes)} lanes")
        check_s = context.clock.monotonic_s() + _CHECK_TOPIC_S
        replaces = opening.replaced is not None
        while not self._stop.wait(context.config.job.heartbeat_ms / 1000):
            query.check()
            query.beat()
            query.report_gauges()
            if replaces and query.complete_as_of_ms:
                self._switch(opening)
                replaces = False
            if context.clock.monotonic_s() >= check_s:
                self._check_topic(opening)
                check_s = context.clock.monotonic_s() + _CHECK_TOPIC_S

    def _check_topic(self, opening: ViewOpening) -> None:
        topic = opening.view.topic
        shape = self._context.broker.describe([topic]).get(topic)
        if shape is None:
            raise TopicChanged(f"topic {topic!r} was deleted")
        if shape != opening.shape:
            raise TopicChanged(f"topic {topic!r} has changed: {shape}")

    def _switch(self, opening: ViewOpening) -> None:
        """Mark the old lanes, then direct readers to the new generation."""
        old = opening.replaced
        if old is None:
            return
        # Another cluster: a batch may be in progress on the query's connections.
        with contextlib.closing(Cluster(self._context.redis)) as cluster:
            ViewLanes(old, self._context.library(cluster), opening.epoch).supersede()
        self._ownership.switch(state_name(opening.name), old.generation, opening.layout)
        self._context.say(f"view {opening.name!r}: switched to generation {opening.layout.generation}")
        self._sweep(state_name(opening.name))
