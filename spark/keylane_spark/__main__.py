"""`python -m keylane_spark --config keylane.toml`: the job as a process.

The environment has the addresses, as for the functions: see docs/configuration/settings.md.

Exit codes: 0 stopped, 2 the config or the environment is wrong, 3 another writer has taken over,
4 something that does not pass by itself, 5 Spark has ended the application, or its JVM is gone.

At SIGHUP it reads its file again and goes on with the topics and views that are there, without a new JVM.
"""

from __future__ import annotations

import signal

if __name__ == "__main__":  # The imports take a second, and the file is read after them in any case.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

import argparse
import contextlib
import multiprocessing
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from keylane.adapters.aws import references
from keylane.adapters.kafka.options import AWS_MSK_IAM, Connection
from keylane.adapters.registry.login import RegistrySettings
from keylane.config import kafka as kafka_config
from keylane.config.functions import renewable_redis, renewable_registry
from keylane.config.settings import is_set
from keylane.config.table import SETTINGS
from keylane.errors import (
    BadConfig,
    EngineEnded,
    Fenced,
    KeylaneError,
    SettingsError,
    SettingsUnavailable,
    UnknownTopic,
)
from keylane.ports import Clock
from keylane.wiring.tracing import open_tracing
from keylane_spark import job
from keylane_spark.config.config_file import load
from keylane_spark.config.job import JobConfig
from keylane_spark.config.topics import Config
from keylane_spark.context import JobContext
from keylane_spark.engine import kafka_options, session
from keylane_spark.engine.connector_jars import with_iam
from keylane_spark.engine.stop_hook import StopHook
from keylane_spark.lanes.claim_clock import ClaimClock
from keylane_spark.lanes.cluster import RedisSettings
from keylane_spark.log.kafka_admin import JobKafka
from keylane_spark.telemetry import emf
from keylane_spark.telemetry.metrics import JobMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from keylane_spark.telemetry.batch_spans import BatchSpans

SERVICE = "keylane-job"
"""The job's name in spans, unless OTEL_SERVICE_NAME has another."""
LOOK_S = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_forking = threading.local()
"""Of each thread that forks: its `mask` of signals."""
_SERVED, _STOPPED, _REFUSED = "served", "stopped before it had begun", "refused"
"""What becomes of a job until the process is to end, or reads its file again."""


def main(arguments: list[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Run until SIGTERM or SIGINT; the exit code is in the module's docstring."""
    parser = argparse.ArgumentParser(prog="keylane_spark", description="Writes topics into their lanes.")
    parser.add_argument("--config", type=Path, default=Path("keylane.toml"), help="default: keylane.toml")
    given = parser.parse_args(arguments)
    signals = Signals()
    signals.handle()
    return until_ended(given.config, environment, signals)


def _hold_signals() -> None:
    """Have a signal wait until the fork is over: one that meets the new process before that is lost."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _let_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _forget_handlers() -> None:
    """A process that a transform forks ends by a signal: pools of processes wait for that."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    _let_signals()


def _do_each(asked: SimpleQueue[Callable[[], None]]) -> NoReturn:
    while True:
        asked.get()()


class Signals:
    """The requests to the process. `stop` ends the job; `asked` says that the process is to end, too."""

    def __init__(self) -> None:
        self.stop, self.asked = threading.Event(), threading.Event()
        self._again = threading.Event()

    def handle(self) -> None:
        """Do as the signals of this process ask, from now on.

        A handler runs between any two steps of the main thread, which may be one that holds an event's lock:
        a handler that set the event would wait for ever. It only asks; another thread does.
        """
        asked: SimpleQueue[Callable[[], None]] = SimpleQueue()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: asked.put(self.end))
        signal.signal(signal.SIGHUP, lambda *_: asked.put(self.read_again))
        os.register_at_fork(
            before=_hold_signals, after_in_parent=_let_signals, after_in_child=_forget_handlers
        )
        threading.Thread(target=_do_each, args=(asked,), name="signals", daemon=True).start()

    def end(self) -> None:
        """End the job, and the process."""
        self.asked.set()
        self.stop.set()

    def read_again(self) -> None:
        """End the job, and begin again with what its file says then."""
        self._again.set()
        self.stop.set()

    def wait_for_end(self, seconds: float) -> None:
        """Wait until the process is to end, so many seconds at most.

        A signal may reach another thread than the one that waits, and its handler runs in the main one alone:
        so that one looks again.
        """
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0 and not self.asked.wait(min(left_s, LOOK_S)):
            pass

    def go_on(self) -> bool:
        """Return whether the job, which has ended, begins again."""
        is_again = self._again.is_set()
        self._again.clear()
        self.stop.clear()
        return is_again and not self.asked.is_set()


class Inputs(NamedTuple):
    """What a job is given by its file and the environment. `kafka` reads the connection again."""

    config: Config
    kafka: Callable[[], Connection]
    connection: Connection
    redis: RedisSettings
    registry: RegistrySettings | None


def until_ended(config: Path, environment: Mapping[str, str], signals: Signals) -> int:
    """Run, and return the exit code.

    A job that another one has replaced waits for its end, as KEYLANE_FENCED_WAIT_S says: a service that
    starts again whatever ends, as ECS does while its new task gets healthy, would take the lanes back.
    """
    hook = StopHook(signals.asked, signals.stop)
    try:
        return _run(config, environment, signals, hook)
    except Fenced:
        if wait_s := SETTINGS.read(environment, "KEYLANE_FENCED_WAIT_S"):
            _say(f"waits for its end, {wait_s} s at most: see KEYLANE_FENCED_WAIT_S")
            signals.wait_for_end(wait_s)
        return 3
    finally:
        hook.job_ended()


def _run(config: Path, environment: Mapping[str, str], signals: Signals, hook: StopHook) -> int:
    """Run, and return the exit code. Raises Fenced, once Spark has stopped."""
    try:
        given = _read(config, environment)
        namespace = SETTINGS.read(environment, "KEYLANE_METRICS_NAMESPACE")
        SETTINGS.read(environment, "KEYLANE_FENCED_WAIT_S")
        clock = Clock()
        metrics = _begin_reporting(given.config.job, clock, namespace)
    except (BadConfig, SettingsUnavailable) as error:
        _say(str(error))
        return 2
    jars = SETTINGS.read(environment, "KEYLANE_JARS")
    checkpoint = SETTINGS.read(environment, "KEYLANE_CHECKPOINT") or tempfile.mkdtemp(prefix="keylane-")
    sys.path.append(str(config.resolve().parent))  # for the modules of transforms
    spans = _open_spans(environment)
    spark = None
    try:
        spark = _start_spark(Path(jars) if jars else None, given)
        hook.register(spark)
        security = given.connection.security
        _warn_of_readable(spark, given.redis.password, security.password, security.key)
        claims = ClaimClock(clock)
        served: Inputs | None = None
        while True:
            renewed = given.kafka if references.has_references(environment) else None
            broker = JobKafka(given.connection, renewed=renewed)
            outside = spark, broker, given.redis, Path(checkpoint), clock, claims
            topics = frozenset(served.config.topics if served else ())
            context = JobContext(given.config, *outside, _say, metrics, spans, given.registry, topics)
            result, is_again = _serve(context, signals, served), signals.go_on()
            if signals.asked.is_set() or not (is_again or result == _REFUSED):
                break
            served = given if result == _SERVED else served
            former = served or given
            given = _read_again(config, environment, former) if is_again else former
    except Fenced as error:
        _say(f"stops: {error}")
        raise
    except EngineEnded as error:
        _say(f"stops: {error}")
        return 5
    except KeylaneError as error:
        _say(f"stops: {error}")
        return 4
    except session.REFUSALS as error:
        _say(f"stops: Spark refuses: {session.words_of(error)}")
        return 4
    finally:
        if spans is not None:
            spans.close()
        if spark is not None:
            session.stop(spark)
    _say("stopped")
    return 0


def _serve(context: JobContext, signals: Signals, served: Inputs | None) -> str:
    """Run the job, and return what became of it. What was `served` before is next where this is refused."""
    try:
        return _SERVED if job.run(context, signals.stop) else _STOPPED
    except (UnknownTopic, BadConfig) as error:  # of a topic that is new
        if served is None or served.config is context.config:
            raise
        _say(f"goes on as before: {error}")
        return _REFUSED


def _read(config: Path, environment: Mapping[str, str]) -> Inputs:
    """Read what a job is given. Raises BadConfig, SettingsUnavailable."""
    topics = _with_environment(load(config), environment)
    kafka = partial(_kafka, environment, topics)
    connection = kafka()
    redis = renewable_redis(environment)
    registry = renewable_registry(environment) if topics.needs_registry else None
    kafka_options.options(connection)
    if topics.job.reader == "direct":
        from keylane_spark.log import fetch_options  # noqa: PLC0415 (brings kafka-python)

        fetch_options.portable(connection)
    return Inputs(topics, kafka, connection, redis, registry)


def _read_again(config: Path, environment: Mapping[str, str], former: Inputs) -> Inputs:
    """Return what a job is given by now, or the former where that can't be used in this process."""
    try:
        found = _read(config, environment)
    except (BadConfig, SettingsUnavailable) as error:
        _say(f"goes on as before: {error}")
        return former
    if reason := found.config.why_not_after(former.config):
        _say(f"goes on as before, because {reason}: start the job again")
        return former
    _say(f"goes on with {config.name} as it is now")
    return found


def _start_spark(jars: Path | None, given: Inputs) -> SparkSession:
    """Start Spark, with AWS' jar where its own reader signs in with IAM."""
    topics, plans_only = given.config, given.config.plans_only
    is_iam = given.connection.security.mechanism == AWS_MSK_IAM and not plans_only
    extra = with_iam(jars, topics.spark) if is_iam else topics.spark
    return session.start(jars, extra, plans_only=plans_only)


def _warn_of_readable(spark: SparkSession, *secrets: str | None) -> None:
    """Say it where the tasks that Spark sends have secrets in them, which others could read on their way."""
    if any(secrets) and session.is_readable(spark):
        _say("Spark sends passwords to its executors without encryption: see `keylane help spark`")


def _begin_reporting(job: JobConfig, clock: Clock, namespace: str) -> JobMetrics:
    """The metrics, reported from now on as `[job] metrics` says. Raises BadConfig for a port in use."""
    if job.metrics == "emf":
        return JobMetrics(clock, emf.INTERVAL_S, emf.EmfLines(_write, namespace))
    if job.metrics == "none":
        return JobMetrics(clock)
    from keylane_spark.telemetry import openmetrics  # noqa: PLC0415 (few need it)

    metrics = JobMetrics(clock, openmetrics.INTERVAL_S)
    openmetrics.serve_metrics(metrics, job.metrics_host, job.metrics_port)
    return metrics


def _open_spans(environment: Mapping[str, str]) -> BatchSpans | None:
    tracing = open_tracing(environment, SERVICE, _say)
    if tracing is None:
        return None
    from keylane_spark.telemetry.batch_spans import BatchSpans  # noqa: PLC0415 (extra `otel`)

    return BatchSpans(tracing)


def _with_environment(config: Config, environment: Mapping[str, str]) -> Config:
    """The config, with what the environment says of `[job]` instead. Raises SettingsError."""
    chosen: dict[str, object] = {}
    if metrics := SETTINGS.read(environment, "KEYLANE_JOB_METRICS"):
        chosen["metrics"] = metrics
    if port := SETTINGS.read(environment, "KEYLANE_JOB_METRICS_PORT"):
        chosen["metrics_port"] = port
    if is_set(environment, "KEYLANE_CREATE_TOPICS"):
        chosen["create_topics"] = SETTINGS.read(environment, "KEYLANE_CREATE_TOPICS")
    return config.model_copy(update={"job": config.job.model_copy(update=chosen)})


def _kafka(environment: Mapping[str, str], topics: Config) -> Connection:
    """The cluster that has the topics, all of them. Raises BadConfig, SettingsUnavailable."""
    clusters = kafka_config.clusters(references.resolved(environment), kafka_config.connection)
    wanted = sorted({*topics.topics, *(view.topic for view in topics.views.values())})
    names = {clusters.name_of(topic): topic for topic in wanted}
    if len(names) > 1:
        found = ", ".join(f"{topic!r} in {name!r}" for name, topic in names.items())
        raise SettingsError("KEYLANE_KAFKA_CLUSTERS", f"has {found}: a job serves topics of one cluster")
    return clusters.of(wanted[0])


def _say(text: str) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    _write(f"keylane: {text}   [{now}]")


def _write(line: str) -> None:
    """Print a line, whatever is in it: a reason may have half of a surrogate pair that a value has.

    No job ends because its output is on a full disk, or closed, or a pipe that nobody reads any more.
    """
    encoding = sys.stdout.encoding or "utf-8"
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stdout.flush()


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run `main`, and end the process with its code.

    Python's own end waits for threads, of which a transform may have started one for good, and for locks that
    threads of libraries may hold: a job that has ended, and whose process has not, nobody starts again.
    """
    try:
        code = main(arguments)
    except Exception:  # noqa: BLE001 (a bug: it must end the process, too)
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    for process in multiprocessing.active_children():  # of a transform: no one else ends them
        process.terminate()
    os._exit(code)


if __name__ == "__main__":
    run()
