"""What a session is asked for, by how the job was started, and what is said of its connections."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Self

import pytest

from keylane_spark import __main__
from keylane_spark.engine import session


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
    __main__._warn_of_readable(started, None, "", "")
    assert capsys.readouterr().out == ""
    __main__._warn_of_readable(started, None, "a-password", "")
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
