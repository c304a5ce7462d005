"""The job: open the lanes, serve until it is stopped, and open them anew when something breaks or changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.errors import Fenced, LaneBehind, TopicChanged, Unavailable, UnknownTopic
from keylane_spark.generations.ownership import Ownership
from keylane_spark.generations.sweeper import Sweeper
from keylane_spark.serving.open_topics import open_topics
from keylane_spark.serving.switch import Serving
from keylane_spark.telemetry.metrics import Meter
from keylane_spark.telemetry.stray_totals import StrayTotals
from keylane_spark.views.runner import Views

if TYPE_CHECKING:
    import threading

    from keylane.errors import KeylaneError
    from keylane_spark.context import Parts
    from keylane_spark.stream.openings import Openings

_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 30.0
_AWAY_PAUSE_S = 1.0


def run(parts: Parts, stop: threading.Event) -> None:
    """Serve the topics until `stop` is set.

    What passes is tried again for ever, with pauses: on-call wants a job that comes back by itself, and its
    lines say what it waits for. Raises what does not pass: Fenced (its sentence says who took over),
    UnknownTopic at the first start, WriterError, CorruptState.
    """
    job = parts.config.job
    ownership = Ownership(parts.redis, parts.clock)
    sweeper = Sweeper(parts.redis, ownership, parts.clock, job.sweep_keys_per_s, parts.say)
    failures: list[KeylaneError] = []

    def fail(error: KeylaneError) -> None:
        failures.append(error)
        stop.set()

    meter = Meter(parts.clock, parts.write if job.metrics == "emf" else None)
    views = Views(parts, ownership, stop, meter, swept=lambda name: sweeper.look_at([name]), failed=fail)
    sweeper.start()
    views.start()
    try:
        _run(parts, ownership, sweeper, stop, meter)
        for failure in failures:
            raise failure
    except Fenced as fenced:
        raise fenced.by(ownership.successor(fenced)) from fenced
    finally:
        stop.set()
        views.join()
        sweeper.stop()
        ownership.close()


def _run(parts: Parts, ownership: Ownership, sweeper: Sweeper, stop: threading.Event, meter: Meter) -> None:
    totals = StrayTotals(ownership)
    pauses = _Pauses(parts, stop)
    away = ""
    while not stop.is_set():
        pauses.begin()
        try:
            openings = open_topics(parts, ownership)
            away = ""
            sweeper.look_at(openings.shapes)
            _tell_incomplete(parts, openings)
            Serving(parts, ownership, openings, totals, meter).until_stopped(stop)
        except TopicChanged as error:
            parts.say(f"opens its lanes anew: {error}")
        except UnknownTopic as error:
            if not ownership.has_begun:
                raise
            if str(error) != away:
                away = str(error)
                parts.say(f"waits for its topics: {away}")
            stop.wait(_AWAY_PAUSE_S)
        except (Unavailable, LaneBehind) as error:
            meter.restart(parts.config.topics)
            pauses.pause(error)
            parts.broker.renew()


def _tell_incomplete(parts: Parts, openings: Openings) -> None:
    for opening in (openings.serving, *([openings.building] if openings.building else [])):
        for topic, partition in opening.incomplete:
            parts.say(
                f"INCOMPLETE: partition {partition} of topic {topic!r}: Kafka no longer has records "
                f"that its state never saw"
            )


class _Pauses:
    """Pauses that grow while nothing works for long; a lane that has gone back is seen to at once."""

    def __init__(self, parts: Parts, stop: threading.Event) -> None:
        self._parts = parts
        self._stop = stop
        self._pause_s = 0.0
        self._began_s = 0.0

    def begin(self) -> None:
        self._began_s = self._parts.clock.monotonic_s()

    def pause(self, error: Unavailable | LaneBehind) -> None:
        if self._parts.clock.monotonic_s() - self._began_s > _LAST_PAUSE_S:
            self._pause_s = 0.0
        if isinstance(error, Unavailable):
            self._pause_s = max(self._pause_s, _FIRST_PAUSE_S)
        self._parts.say(f"begins anew in {self._pause_s:.0f} s: {error}")
        self._stop.wait(self._pause_s)
        self._pause_s = min(max(self._pause_s * 2, _FIRST_PAUSE_S), _LAST_PAUSE_S)
