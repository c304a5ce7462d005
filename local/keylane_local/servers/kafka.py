"""A Kafka broker: one KRaft node, broker and controller in one process, on one address of this machine."""

import contextlib
import subprocess
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from keylane_local.errors import ToolMissing
from keylane_local.process.ports import HOST
from keylane_local.process.program import Program, ProgramPart
from keylane_local.servers.kafka_format import format_as_before, is_formatted, keep_format, new_id
from keylane_local.tools import MIN_JAVA, find_java, tools_dir

NAME = "kafka"
START_TIMEOUT_S = 60.0
_FORMAT_TIMEOUT_S = 60.0
# Measured with a million records of 184 B on 2 shared cores: 1.1 s of CPU, against 1.5 s with C2 and 2.4 s
# with G1 and C2. One record's acknowledgement takes 0.27 ms (p50) against 0.5 ms; memory use is lowest.
_JVM = (
    *("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Djava.awt.headless=true",
    # Kafka makes names of its settings in the machine's language: in Turkish it does not know its own.
    *("-Duser.language=en", "-Duser.country=US"),
)
# An archive that does not fit is ignored, and that is no news to anyone.
_QUIET_ARCHIVE = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
# A value may have 1 MiB; the rest is for key, headers and the batch's own bytes.
_MAX_BATCH_BYTES = 1024 * 1024 + 128 * 1024

_SERVER = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={node_id}@{loopback}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{loopback}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
message.max.bytes={max_batch_bytes}
replica.fetch.max.bytes={max_batch_bytes}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=3
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# A crashed broker can register again only after its last session has expired, by default after 9 s.
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=1000
"""

_LOGGING = """\
status = warn
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %-5p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
logger.start.name = org.apache.kafka.server
logger.start.level = warn
"""


class Kafka(ProgramPart):
    """The broker. Its folder holds the log (`data`) and the configuration."""

    name = NAME
    cluster_id = ""
    """The id with which a new log folder is formatted; empty: a random one."""
    node_id = 1
    """Its number in its cluster."""

    def __init__(
        self, home: Path, *, run: Path, log: Path, port: int, controller_port: int, host: str = HOST
    ) -> None:
        """Set folder (`home`), folder of the pid file (`run`), log file, ports and address."""
        self.home = home
        self.host = host
        self.port = port
        self.controller_port = controller_port
        self.program = Program(
            NAME,
            [],
            pid_file=run / "kafka.json",
            log=log,
            env={"LC_ALL": "C.UTF-8"},  # plain C is ASCII: the JVM would not read a folder's name with others
            stop_timeout_s=20,
        )

    @property
    def bootstrap(self) -> str:
        """The address for clients, "host:port"."""
        return f"{self.host}:{self.port}"

    def more_settings(self) -> str:
        """Return further lines of server.properties, which override the others. Subclasses may have some."""
        return ""

    def archive_options(self) -> tuple[str, ...]:
        """Return the options by which the JVM finds its archive of classes. Subclasses may have others."""
        archive = archive_file()
        return (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()

    def start(self) -> None:
        """Start it, unless it runs, with its configuration written and a new log folder formatted."""
        if self.running:
            return
        java = self._java()
        self.home.mkdir(parents=True, exist_ok=True)
        server, data = self.home / "server.properties", self.home / "data"
        text = _SERVER.format(
            host=self.host,
            loopback=HOST,
            node_id=self.node_id,
            port=self.port,
            controller_port=self.controller_port,
            data=_escaped(data),
            max_batch_bytes=_MAX_BATCH_BYTES,
        )
        server.write_text(text + self.more_settings(), encoding="latin-1")
        logging = self.home / "log4j2.properties"
        logging.write_text(_LOGGING, encoding="utf-8")
        java = [*java, f"-Dlog4j2.configurationFile={logging.absolute().as_uri()}"]
        if not is_formatted(data):
            self._format(data, java, server)
        self.program.command = [*java, "kafka.Kafka", str(server.absolute())]
        self.program.start()

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until it answers clients; raise PartFailed otherwise."""
        self.program.wait_until(self.answers, timeout_s)

    def answers(self, timeout_s: float = 1.0) -> bool:
        """Return whether it answers a metadata request within `timeout_s`."""
        admin = AdminClient(
            {
                "bootstrap.servers": self.bootstrap,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        with contextlib.suppress(KafkaException):
            return bool(admin.list_topics(timeout=timeout_s).brokers)
        return False

    def _java(self) -> list[str]:
        java, jars = find_java(), tools_dir() / "jars"
        if not java:
            raise ToolMissing(f"Java {MIN_JAVA} or newer is not on PATH or in JAVA_HOME")
        if not any(jars.glob("kafka_*.jar")):
            raise ToolMissing(f"Kafka is not in {jars}: `keylane up` downloads it")
        return [java, *_JVM, *self.archive_options(), *_QUIET_ARCHIVE, "-cp", f"{jars}/*"]

    def _format(self, data: Path, java: list[str], server: Path) -> None:
        cluster_id = self.cluster_id or new_id()
        if format_as_before(data, self.node_id, cluster_id):
            return
        command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(server)]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            try:
                subprocess.run(
                    command, stdout=log, stderr=subprocess.STDOUT, timeout=_FORMAT_TIMEOUT_S, check=True
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise self.program.failure(f"its log folder could not be formatted: {error}") from error
        keep_format(data)


def archive_file() -> Path:
    """Return where the archive of a broker's classes is, if the set-up has made one."""
    return tools_dir() / "kafka.jsa"


def _escaped(path: Path) -> str:
    """Return `path` as a value of a Java properties file, with backslashes and non-ASCII escaped."""
    text = str(path.absolute()).replace("\\", "\\\\")
    return "".join(char if ord(char) < 128 else f"\\u{ord(char):04x}" for char in text)  # noqa: PLR2004
