"""The local stack: Kafka, a Redis Cluster, the standing server, the Spark job and, on request, LocalStack.

Tests use it as a library:

    with Stack(data_dir=folder, config=Path("keylane.toml")) as stack:
        requests.get(f"{stack.http_url}/topics/t/keys/k")
        stack.job.kill()
        stack.job.start()
        stack.job.wait_ready()
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from keylane_local.errors import BadInput, StackError
from keylane_local.process.ports import Reservations
from keylane_local.servers.kafka import Kafka
from keylane_local.servers.localstack import LocalStack
from keylane_local.servers.redis_cluster import RedisCluster
from keylane_local.setup.prerequisites import JAVA, REDIS, fetch_jars, require_programs
from keylane_local.stack import topics
from keylane_local.stack.parts import ServerPart, SparkJob
from keylane_local.stack.plan import StackOptions, plan_stack
from keylane_local.stack.state import StackState
from keylane_local.tools import tools_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from keylane_local.deploy.deployment import Deployed
    from keylane_spark.config.topics import TopicConfig


StackPart: TypeAlias = Kafka | RedisCluster | ServerPart | LocalStack | SparkJob


_APPLIED = "applied.toml"


def _metrics_variables(state: StackState) -> dict[str, str]:
    if state.metrics_port is None:
        return {}
    return {"KEYLANE_JOB_METRICS": "openmetrics", "KEYLANE_JOB_METRICS_PORT": str(state.metrics_port)}


def _report_nothing(part: str, event: str) -> None:
    pass


def _prepare(missing: Collection[str]) -> None:
    """Before these parts start: name the programs that are missing, download the jars that are."""
    needs_java = {"kafka", "job"} & set(missing)
    require_programs(*([JAVA] if needs_java else []), *([REDIS] if "redis" in missing else []))
    if needs_java:
        fetch_jars()


class Stack:
    """The stack in the folder `data_dir`. What another command started there is found and used."""

    def __init__(
        self,
        data_dir: Path,
        config: Path | None = None,
        *,
        options: StackOptions | None = None,
        variables: Mapping[str, str] | None = None,
        progress: Callable[[str, str], None] = _report_nothing,
    ) -> None:
        """Describe the stack; nothing starts yet.

        `variables` are added to those of functions and job (`environment`). `progress` is called with a
        part's name and an event, from several threads.
        """
        self.data = data_dir.absolute()
        self.options = options or StackOptions()
        self.config = config
        self._variables = dict(variables or {})
        self._progress = progress
        self._of_topics: dict[str, str] = {}
        self._rereading: SparkJob | None = None
        self._describe_parts(StackState.load(self.data))

    def _describe_parts(self, state: StackState | None) -> None:
        self.state = state
        if state is None:
            return
        run, logs = self.data / "run", self.data / "logs"
        self.kafka = Kafka(
            self.data / "kafka",
            run=run,
            log=logs / "kafka.log",
            port=state.kafka_port,
            controller_port=state.controller_port,
            host=state.host,
        )
        self.redis = RedisCluster(
            self.data / "redis",
            run=run,
            logs=logs,
            addresses=[(state.host, *ports) for ports in state.redis_ports],
            shards=state.shards,
            appendonly=state.appendonly,
        )
        self.server = ServerPart(
            run=run,
            log=logs / "server.log",
            host=state.http_host,
            port=state.http_port,
            environment=self.environment(),
        )
        self.localstack = (
            LocalStack(
                self.data / "localstack", run=run, log=logs / "localstack.log", port=state.localstack_port
            )
            if state.localstack_port
            else None
        )
        self.job = SparkJob(
            self.data / "job",
            run=run,
            log=logs / "job.log",
            config=Path(state.config or "keylane.toml"),
            environment={**self._addresses(), **_metrics_variables(state)},
        )

    @property
    def parts(self) -> Sequence[StackPart]:
        """The parts in the order of their start; empty if no stack was ever started here."""
        if self.state is None:
            return ()
        own: tuple[StackPart | None, ...] = (
            None if self.state.outside_kafka else self.kafka,
            None if self.state.outside_redis else self.redis,
            self.server,
            self.localstack,
            self.job if self.state.config else None,
        )
        return tuple(part for part in own if part)

    @property
    def kafka_bootstrap(self) -> str:
        """The address of the broker, or brokers, "host:port"."""
        return (self.state and self.state.outside_kafka) or self.kafka.bootstrap

    @property
    def redis_nodes(self) -> str:
        """The cluster's nodes, "host:port,host:port"."""
        return (self.state and self.state.outside_redis) or self.redis.addresses

    @property
    def http_url(self) -> str:
        """The server's address, "http://host:port"."""
        return self.server.url

    def environment(self) -> dict[str, str]:
        """Return the variables with which functions use this stack."""
        return {**self._addresses(), **self._of_topics, **self._variables}

    def _addresses(self) -> dict[str, str]:
        """Return the variables with which the job uses this stack: its file has the topics."""
        return {
            "KEYLANE_KAFKA_BOOTSTRAP": self.kafka_bootstrap,
            "KEYLANE_REDIS_NODES": self.redis_nodes,
            # How to connect to one from outside, the environment says.
            **({} if self.state and self.state.outside_redis else {"KEYLANE_REDIS_TLS": "false"}),
            "KEYLANE_JARS": str(tools_dir() / "jars"),
            "KEYLANE_CHECKPOINT": str(self.data / "checkpoint"),
            **self._variables,
        }

    def up(self) -> list[str]:
        """Start the parts that do not run, wait until all are ready, and return the names of those started.

        Job and server start again if their settings are others by now. For other topics and views alone, the
        job goes on.

        Raises StackError, after stopping what this call has started. A job that goes on is not stopped.
        """
        declared = topics.load_topics(self.config) if self.config else {}
        self._of_topics = topics.render_placement(declared)
        if self.options.outside_kafka:
            self._of_topics |= topics.render_served(declared)
        with self._locked(), Reservations() as reservations:
            before = StackState.load(self.data)
            self._describe_parts(
                plan_stack(self.options, self.data, self.config, before, self._running(), reservations)
            )
            self._rereading = None
            assert self.state is not None  # noqa: S101 - for the type checker: plan_stack() returned it
            outdated: dict[StackPart, list[str]] = {
                part: names for part in (self.job, self.server) if (names := part.program.changed_inputs())
            }
            missing = [part for part in self.parts if not part.running or part in outdated]
            _prepare({part.name for part in missing})
            self.state.save(self.data)
            try:
                self._stop(self._report_changes(outdated))
                self._start_together([part for part in missing if part in (self.kafka, self.redis)])
                self._create_topics(declared)
                self._start_together([part for part in missing if part not in (self.kafka, self.redis)])
                self._keep_applied(missing)
            except BaseException:
                self._give_up(missing)
                raise
        return [part.name for part in missing]

    def deploy(self, parameters: Mapping[str, str] | None = None) -> Deployed:
        """Deploy the template to LocalStack, with `parameters` over those that point it to this stack.

        Raises StackError; BadInput if LocalStack does not run here.
        """
        from keylane_local.deploy import deployment  # noqa: PLC0415 - its imports take long

        if self.state is None or self.localstack is None or not self.localstack.running:
            raise BadInput("no LocalStack runs here: start it with `keylane up --localstack`")
        partition_by = topics.render_partition_by(topics.load_topics(self.config) if self.config else {})
        ours = deployment.parameters_for(self.kafka_bootstrap, self.redis_nodes, partition_by)
        return deployment.deploy(
            self.localstack,
            ours | dict(parameters or {}),
            deployment.Sources(self.data / "build"),
            progress=lambda event: self._progress("deploy", event),
        )

    def down(self, *, wipe: bool = False) -> list[str]:
        """Stop the parts that run, the last one first; return their names. `wipe` deletes the data folder."""
        if not self.data.is_dir():
            return []
        with self._locked():
            self._describe_parts(StackState.load(self.data))
            running = [part for part in self.parts if part.name in self._running()]
            self._stop(running)
        if wipe:
            shutil.rmtree(self.data)
        return [part.name for part in running]

    def __enter__(self) -> Self:
        """Start the stack."""
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the stack; its data stays."""
        self.down()

    def _report_changes(self, outdated: Mapping[StackPart, Sequence[str]]) -> list[StackPart]:
        """Say why parts start again, and what the job builds again; return those that must stop before."""
        stopped, found = list(outdated), None
        if self.job in outdated and self.config:
            from keylane_local.stack.changes import find_changes  # noqa: PLC0415 - its imports take long

            found = find_changes(self.data / _APPLIED, self.config)
            if outdated[self.job] == [self.config.name] and not found.why_start:
                stopped.remove(self.job)
                self._rereading = self.job
        for part, names in outdated.items():
            again = "starts again" if part in stopped else "goes on"
            self._progress(part.name, f"{again}: {', '.join(names)} changed since its start")
        for line in found.sentences if found else ():
            self._progress(self.job.name, line)
        return stopped

    def _keep_applied(self, started: Sequence[StackPart]) -> None:
        """Keep the file with which the job was started, for the comparison with the next one."""
        if self.job in started and self.config and not self.job.program.changed_inputs():
            shutil.copyfile(self.config, self.data / _APPLIED)

    def _create_topics(self, declared: Mapping[str, TopicConfig]) -> None:
        """Create missing topics, in a Kafka of this stack only: in another one, the job does so if asked."""
        if not declared or (self.state and self.state.outside_kafka):
            return
        if created := topics.create_missing(self.kafka_bootstrap, declared):
            self._progress(self.kafka.name, f"created topics: {', '.join(created)}")

    def _running(self) -> set[str]:
        """Return the names of the parts of which at least one process runs."""
        redis_runs = self.state is not None and any(node.running for node in self.redis.nodes)
        return {part.name for part in self.parts if part.running} | ({"redis"} if redis_runs else set())

    def _start_together(self, parts: Sequence[StackPart]) -> None:
        pool = ThreadPoolExecutor()
        try:
            for future in as_completed([pool.submit(self._start, part) for part in parts]):
                future.result()
        except BaseException:
            self._give_up(parts)  # this ends the waits for the others,
            pool.shutdown()
            self._give_up(parts)  # one of which may have come up in the meantime
            raise
        pool.shutdown()

    def _start(self, part: StackPart) -> None:
        if part is self.job and part.running:
            self.job.read_again()
        else:
            self._progress(part.name, "starts")
            part.start()
        part.wait_ready()
        refusal = self.job.take_refusal() if part is self.job else ""
        self._progress(part.name, refusal or "ready")

    def _give_up(self, parts: Sequence[StackPart]) -> None:
        """Stop what has been started. A job that reads its file again serves on; the next call asks again."""
        self._stop([part for part in parts if part is not self._rereading])
        if self._rereading and self._rereading.running:
            self._rereading.program.note_unread()

    def _stop(self, parts: Sequence[StackPart]) -> None:
        for part in reversed(parts):
            if part.name not in self._running():
                continue
            self._progress(part.name, "stops")
            part.stop()
            self._progress(part.name, "stopped")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock that keeps two commands from changing one stack at the same time."""
        self.data.mkdir(parents=True, exist_ok=True)
        (self.data / ".gitignore").write_text("*\n", encoding="utf-8")
        with (self.data / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StackError(f"another command is working on {self.data}: wait until it ends") from None
            yield
