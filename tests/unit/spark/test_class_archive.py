"""How a job's JVM starts: with the archive of classes, with the connector's jars, with which compiler."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from keylane.config.kafka import connection
from keylane_spark import __main__ as job
from keylane_spark.config.config_file import load
from keylane_spark.engine import connector_jars, session


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
