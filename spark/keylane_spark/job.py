"""The job: opens the lanes, serves until it is stopped, and starts over when something fails or changes."""

import threading
from dataclasses import replace

from keylane.errors import Fenced, KeylaneError, LaneBehind, TopicChanged, Unavailable, UnknownTopic
from keylane_spark.context import JobContext
from keylane_spark.engine import session
from keylane_spark.generations.ownership import Ownership, RecordKeeper
from keylane_spark.generations.sweeper import Sweeper
from keylane_spark.serving.open_topics import open_topics
from keylane_spark.serving.switch import Serving
from keylane_spark.stream.openings import Openings
from keylane_spark.stream.restarts import RestartPauses
from keylane_spark.telemetry.strays import StrayTotals
from keylane_spark.views.runner import Views

_MISSING_TOPIC_PAUSE_S = 1.0


def run(context: JobContext, stop: threading.Event) -> bool:
    """Serve the topics until `stop` is set. Returns whether it has opened them.

    Errors that may pass are retried for ever, with pauses and a line for each: the job recovers by itself.
    Raises those that don't: Fenced (its sentence says who took over), EngineEnded, WriterError, CorruptState,
    BadConfig; at the beginning UnknownTopic, for one that the process has not served before, and what Spark
    refuses where it has served none.
    """
    context.metrics.keep(context.config.topics, context.config.views)
    ownership = Ownership(context.redis, context.clock, context.write_options, context.say)
    sweeper = Sweeper(context.redis, ownership, context.clock, context.config, context.say)
    keeper = RecordKeeper(ownership, context.say)
    failures: list[KeylaneError] = []

    def fail(error: KeylaneError) -> None:
        failures.append(error)
        stop.set()

    views = Views(context, ownership, stop, sweep=lambda name: sweeper.look_at([name]), failed=fail)
    sweeper.start()
    keeper.start()
    views.start()
    try:
        _serve(context, ownership, sweeper, stop)
        for failure in failures:
            raise failure
    except Fenced as fenced:
        raise fenced.by(ownership.successor(fenced)) from fenced
    finally:
        stop.set()
        views.join()
        sweeper.stop()
        keeper.stop()
        ownership.close()
    return ownership.has_begun


def _serve(context: JobContext, ownership: Ownership, sweeper: Sweeper, stop: threading.Event) -> None:
    totals = StrayTotals(ownership)
    pauses = RestartPauses(context, stop)
    context = replace(context, say=pauses.say)
    reported, openings = "", None
    while not stop.is_set():
        is_first = openings is None
        context.metrics.flush_due()
        try:
            pauses.begin()
            openings = open_topics(context, ownership, openings.parked if openings else None)
            reported = ""
            sweeper.look_at(openings.shapes)
            _report_incomplete(context, openings)
            Serving(context, ownership, openings, totals, context.metrics).until_stopped(stop)
        except TopicChanged as error:
            context.say(f"opens its lanes again: {error}")
        except UnknownTopic as error:
            if not ownership.has_begun and error.topic not in context.served:
                raise
            if str(error) != reported:
                reported = str(error)
                context.say(f"waits for its topics: {reported}")
            stop.wait(_MISSING_TOPIC_PAUSE_S)
        except (Unavailable, LaneBehind) as error:
            _count_restart(context)
            pauses.pause(error)
        except session.REFUSALS as error:
            # What it refuses at the start it always does. Later it may take it again: a disk was full, say.
            if is_first and not context.served:
                raise
            _count_restart(context)
            pauses.pause(Unavailable(f"Spark refuses: {session.words_of(error)}"))
        except session.GATEWAY_ERRORS:
            session.check_running(context.spark)  # where its JVM is gone, that is the reason
            raise


def _count_restart(context: JobContext) -> None:
    for topic in context.config.topics:
        context.metrics.count("topic", topic, restarts=1)


def _report_incomplete(context: JobContext, openings: Openings) -> None:
    for opening in (openings.serving, *([openings.building] if openings.building else [])):
        missed = opening.missed_deletions
        for topic, partition in opening.incomplete:
            why = "Kafka no longer has records that the state never read"
            if (topic, partition) in missed:
                why = (
                    "its lanes may hold deleted keys, because compaction may have removed tombstones that "
                    "they never read: the topic is built again"
                )
            context.say(f"INCOMPLETE: partition {partition} of topic {topic!r}: {why}")
