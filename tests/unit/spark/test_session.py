"""How a job's JVM starts and stops: its settings and jars, by how the job was started, and its hook."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Self

import pyspark
import pytest

from keylane.config.kafka import connection
from keylane_spark import __main__ as job
from keylane_spark.config.config_file import load
from keylane_spark.engine import connector_jars, session, stop_hook
from keylane_spark.engine.session import streaming_class
from keylane_spark.engine.stop_hook import StopHook


class Builder:
    """Stands for `SparkSession.builder`, and collects its settings."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.silent: list[str] = []

    def appName(self, _: str) -> Self:  # noqa: N802 (Spark's name)
        return self

    def config(self, name: str, value: str) -> Self:
        self.settings[name] = value
        return self

    def getOrCreate(self):  # noqa: N802 (Spark's name)
        return SimpleNamespace(sparkContext=SimpleNamespace(setLogLevel=lambda _: None))


@pytest.fixture
def builder(monkeypatch):
    found = Builder()
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=found))
    monkeypatch.setattr(session, "_silence", lambda _, loggers: found.silent.extend(loggers))
    monkeypatch.setattr(session.sys, "platform", "linux")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return found


def running(**settings: str):
    """A session with these settings, `_` for a dot."""
    conf = {f"spark.{name.replace('_', '.')}": value for name, value in settings.items()}
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))


def test_a_submitted_job_leaves_the_cluster_to_spark_submit_and_forks_workers_with_their_imports_done(
    builder, monkeypatch
):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    session.start(None, {})
    assert not session.LOCAL_SETTINGS.keys() & builder.settings.keys()
    assert not session.LOOPBACK_SETTINGS.keys() & builder.settings.keys()
    assert builder.settings["spark.python.daemon.module"] == session.WORKER_DAEMON


def test_errors_that_the_job_names_are_not_logged_by_spark_unless_the_user_sets_the_level(builder):
    session.start(None, {"spark.log.level": "INFO"})
    assert builder.silent == []
    session.start(None, {})
    assert "org.apache.spark.scheduler.TaskSetManager" in builder.silent


def test_a_user_s_daemon_comes_before_ours(builder):
    session.start(None, {"spark.python.daemon.module": "own.daemon"})
    assert builder.settings["spark.python.daemon.module"] == "own.daemon"


def test_a_master_that_the_file_names_gets_no_loopback_address_of_the_driver(builder):
    session.start(None, {"spark.master": "spark://master:7077"})
    assert not session.LOOPBACK_SETTINGS.keys() & builder.settings.keys()
    assert builder.settings["spark.python.daemon.module"] == session.WORKER_DAEMON


def test_a_job_on_one_machine_listens_at_its_loopback_address(builder):
    session.start(None, {})
    assert builder.settings.items() >= session.LOOPBACK_SETTINGS.items()


@pytest.mark.parametrize(
    ("settings", "is_readable"),
    [
        ({"master": "local[4]"}, False),
        ({"master": "spark://master:7077"}, True),
        ({"master": "yarn", "network_crypto_enabled": "false"}, True),
        ({"master": "spark://master:7077", "network_crypto_enabled": "true"}, False),
        ({"master": "yarn", "ssl_rpc_enabled": "TRUE"}, False),
        ({"master": "spark://emr:7077", "ssl_internode_enabled": "true"}, False),
    ],
)
def test_passwords_that_others_could_read_on_their_way_to_executors_are_a_line_of_the_log(
    settings, is_readable, capsys
):
    started = running(**settings)
    assert session.is_readable(started) is is_readable
    job._warn_of_readable(started, None, "", "")
    assert capsys.readouterr().out == ""
    job._warn_of_readable(started, None, "a-password", "")
    said = capsys.readouterr().out
    assert ("without encryption" in said) is is_readable
    assert "a-password" not in said


@pytest.mark.parametrize(
    ("master", "parallelism", "records"),
    [
        ("spark://master:7077", 2, 1_000_000),
        ("spark://master:7077", 16, 4_000_000),
        ("k8s://x", 0, 1_000_000),
    ],
)
def test_a_batch_grows_with_the_tasks_that_run_at_once(master, parallelism, records):
    context = SimpleNamespace(master=master, defaultParallelism=parallelism)
    assert session.batch_records(SimpleNamespace(sparkContext=context)) == records


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("4.0.2", "org.apache.spark.sql.execution.streaming.StreamExecution"),
        ("4.1.0", "org.apache.spark.sql.execution.streaming.runtime.StreamExecution"),
        ("4.2.0.dev0", "org.apache.spark.sql.execution.streaming.runtime.StreamExecution"),
    ],
)
def test_classes_of_streaming_are_named_as_the_version_of_spark_has_them(monkeypatch, version, name):
    monkeypatch.setattr(pyspark, "__version__", version)
    assert streaming_class("runtime", "StreamExecution") == name


@pytest.fixture
def jars(tmp_path, monkeypatch):
    """A folder with jars, and the files of an archive that set-up has made with them."""
    for name in ("kafka-clients-4.jar", "commons-pool2-2.jar", "kafka_2.13-4.jar"):
        (tmp_path / name).touch()
    monkeypatch.setattr(connector_jars, "ARCHIVE", tmp_path / "spark.jsa")
    monkeypatch.setattr(connector_jars, "ARCHIVED_JARS", tmp_path / "spark.classpath")
    connector_jars.ARCHIVE.touch()
    connector_jars.ARCHIVED_JARS.write_text(f"{tmp_path}/commons-pool2-2.jar:{tmp_path}/kafka-clients-4.jar")
    return tmp_path


def test_the_connector_is_on_the_class_path_of_the_archive_that_has_its_classes(jars):
    found = connector_jars.archived(jars)
    assert found is not None
    assert found.class_path == connector_jars.ARCHIVED_JARS.read_text()
    assert f'"-XX:SharedArchiveFile={connector_jars.ARCHIVE}"' in found.java_options


@pytest.mark.parametrize("missing", ["ARCHIVE", "ARCHIVED_JARS"])
def test_without_an_archive_nothing_is_set(jars, missing):
    getattr(connector_jars, missing).unlink()
    assert connector_jars.archived(jars) is None


def test_an_archive_with_other_jars_is_not_used(jars):
    (jars / "kafka-clients-4.jar").rename(jars / "kafka-clients-5.jar")
    assert connector_jars.archived(jars) is None
    assert connector_jars.archived(None) is None


def test_a_user_s_jars_are_loaded_beside_the_connector_s(jars):
    ours = [str(jars / "commons-pool2-2.jar"), str(jars / "kafka-clients-4.jar")]
    assert connector_jars.all_jars(jars, "").split(",") == ours
    assert connector_jars.all_jars(jars, "/opt/iam-auth.jar, ").split(",") == ["/opt/iam-auth.jar", *ours]
    own = "s3://jars/kafka-clients-4.jar"
    assert connector_jars.all_jars(jars, own).split(",") == [own, ours[0]], "the user's own copy is taken"


def test_aws_jar_for_iam_comes_after_spark_s_own_and_so_without_the_archive(jars):
    """It contains a Netty of another version."""
    (jars / "aws-msk-iam-auth-2.3.5-all.jar").touch()
    extra = connector_jars.with_iam(jars, {})
    named = connector_jars.all_jars(jars, str(extra["spark.jars"])).split(",")
    assert [each.rpartition("/")[2] for each in named] == [
        "aws-msk-iam-auth-2.3.5-all.jar",
        "commons-pool2-2.jar",
        "kafka-clients-4.jar",
    ]
    assert "spark.driver.extraClassPath" not in session.local_settings(jars, extra, plans_only=False)
    found = connector_jars.archived(jars)
    assert found is not None, "the archive stays as it is for those without IAM"


@pytest.mark.parametrize(
    ("mechanism", "reader", "is_loaded"),
    [("AWS_MSK_IAM", "spark", True), ("AWS_MSK_IAM", "direct", False), ("SCRAM-SHA-512", "spark", False)],
)
def test_a_job_whose_jvm_reads_with_iam_loads_the_jar_and_no_other(
    jars, monkeypatch, mechanism, reader, is_loaded
):
    (jars / "aws-msk-iam-auth-2.3.5-all.jar").touch()
    (jars / "keylane.toml").write_text(f"[topics.flights]\n[job]\nreader = '{reader}'\n")
    login = {"MECHANISM": mechanism, "USERNAME": "u", "PASSWORD": "p", "REGION": "eu-west-1"}
    environment = {f"KEYLANE_KAFKA_SASL_{name}": value for name, value in login.items()}
    found = connection(environment | {"KEYLANE_KAFKA_BOOTSTRAP": "b:9098"})
    started = []
    monkeypatch.setattr(session, "start", lambda _, extra, **__: started.append(extra))
    job._start_spark(jars, SimpleNamespace(config=load(jars / "keylane.toml"), connection=found))
    assert ("aws-msk-iam-auth" in str(started[0].get("spark.jars"))) == is_loaded


def test_a_user_s_own_jar_for_iam_is_taken(jars):
    (jars / "aws-msk-iam-auth-2.3.5-all.jar").touch()
    own = {"spark.jars": "/opt/aws-msk-iam-auth-2.9-all.jar"}
    assert connector_jars.with_iam(jars, own) == own
    assert connector_jars.with_iam(None, {}) == {}
    ours = connector_jars.with_iam(jars, {"spark.jars": "/opt/other.jar"})["spark.jars"]
    assert ours == f"{jars}/aws-msk-iam-auth-2.3.5-all.jar,/opt/other.jar"


@pytest.mark.parametrize("plans_only", [False, True])
def test_only_a_jvm_that_records_pass_through_has_its_optimizing_compiler(jars, plans_only):
    found = session.local_settings(jars, {}, plans_only=plans_only)
    options = str(found["spark.driver.extraJavaOptions"])
    assert ("-XX:TieredStopAtLevel=1" in options) == plans_only
    assert "-XX:SharedArchiveFile" in options


def test_a_class_path_of_the_user_s_leaves_the_archive_out(jars):
    found = session.local_settings(jars, {"spark.driver.extraClassPath": "/opt/own.jar"}, plans_only=False)
    assert "spark.driver.extraClassPath" not in found
    assert found["spark.driver.extraJavaOptions"] == "-XX:+ExitOnOutOfMemoryError"


@pytest.mark.parametrize("master", ["spark://10.0.0.1:7077", "yarn", "k8s://https://10.0.0.1:6443"])
def test_executors_of_a_cluster_reach_the_driver_and_are_sent_the_connector(jars, master):
    found = session.local_settings(jars, {"spark.master": master}, plans_only=False)
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & found.keys()
    # Without this `start` names the jars to Spark, which sends them to executors.
    assert "spark.driver.extraClassPath" not in found


@pytest.mark.parametrize("extra", [{}, {"spark.master": "local[2]"}])
def test_without_a_cluster_the_driver_listens_on_this_machine_alone(jars, extra):
    found = session.local_settings(jars, extra, plans_only=False)
    assert found["spark.driver.bindAddress"] == found["spark.driver.host"] == "127.0.0.1"


class Manager:
    """Stands for Hadoop's `ShutdownHookManager`, with hooks by priority."""

    def __init__(self) -> None:
        self.hooks: dict[object, int] = {}

    def addShutdownHook(self, hook, priority, *_timeout) -> None:  # noqa: N802 (Java's name)
        self.hooks[hook] = priority

    def removeShutdownHook(self, hook) -> bool:  # noqa: N802 (Java's name)
        return self.hooks.pop(hook) > 0


class Package:
    """A package of Java: any name in it, and what is set."""

    def __init__(self, **names) -> None:
        self.__dict__.update(names)

    def __getattr__(self, name):
        return Package()


@pytest.fixture
def manager(monkeypatch):
    monkeypatch.setattr(stop_hook, "ensure_callback_server_started", lambda _: None)
    return Manager()


@pytest.fixture
def jvm(manager):
    util = Package(ShutdownHookManager=Package(get=lambda: manager))
    java = Package(
        java=Package(lang=Package(Thread=lambda hook: threading.Thread(target=hook.run))),
        org=Package(apache=Package(hadoop=Package(util=util))),
    )
    return Package(sparkContext=Package(_gateway=None, _jvm=java))


@pytest.fixture
def submitted(monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")


def test_a_jvm_that_ends_stops_the_job_before_spark_s_own_hook_and_waits_for_it(jvm, manager, submitted):
    stop, said = threading.Event(), []
    hook = StopHook(stop)
    hook.register(jvm)
    assert min(manager.hooks.values()) > 40

    def end() -> None:
        hook.run()
        said.append("the JVM goes on")

    ending = threading.Thread(target=end)
    ending.start()
    assert stop.wait(60)
    said.append("stopped")
    hook.job_ended()
    ending.join(60)
    assert said == ["stopped", "the JVM goes on"]
    assert manager.hooks, "Hadoop refuses to remove a hook by then"


def test_a_job_that_ends_by_itself_leaves_no_hook(jvm, manager, submitted):
    hook = StopHook(threading.Event())
    hook.register(jvm)
    assert manager.hooks
    hook.job_ended()
    assert manager.hooks == {}


def test_without_spark_submit_the_signal_comes_here_and_the_jvm_has_no_hook(jvm, manager, monkeypatch):
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    hook = StopHook(threading.Event())
    hook.register(jvm)
    hook.job_ended()
    assert manager.hooks == {}


def test_a_job_that_never_got_a_session_ends_all_the_same():
    StopHook(threading.Event()).job_ended()
