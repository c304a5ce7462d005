"""The job: open the lanes, run the query until it is stopped, and open them anew when it breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.errors import LaneBehind, Unavailable
from keylane_spark.opening import open_topics
from keylane_spark.query import Query

if TYPE_CHECKING:
    import threading

    from keylane_spark.query import Parts

_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 30.0


def run(parts: Parts, stop: threading.Event) -> None:
    """Serve the topics until `stop` is set.

    What passes is tried again for ever, with pauses: on-call wants a job that comes back by itself, and its
    lines say what it waits for. Raises what does not pass: Fenced, UnknownTopic, WriterError, CorruptState.
    """
    pause_s = _FIRST_PAUSE_S
    while not stop.is_set():
        began_s = parts.clock.monotonic_s()
        try:
            opening = open_topics(parts.config, parts.broker, parts.redis, parts.clock, parts.say)
            for topic, partition in opening.incomplete:
                parts.say(
                    f"INCOMPLETE: partition {partition} of topic {topic!r}: Kafka no longer has records "
                    f"that its state never saw"
                )
            Query(parts, opening).until_stopped(stop)
        except (Unavailable, LaneBehind) as error:
            if parts.clock.monotonic_s() - began_s > _LAST_PAUSE_S:
                pause_s = _FIRST_PAUSE_S
            parts.say(f"begins anew in {pause_s:.0f} s: {error}")
            stop.wait(pause_s)
            pause_s = min(pause_s * 2, _LAST_PAUSE_S)
