"""compose.yaml, Dockerfiles, samconfig.toml and the workflow fit the project they are for."""

from __future__ import annotations

import os
import re
import tomllib

import pyspark
import pytest
import yaml
from tests.support.cloudformation import ROOT, of_type, template

from keylane_build import job_package
from keylane_local import jars
from keylane_local.tools import OLDER_SPARK, jars_dir
from keylane_spark.engine.connector_jars import CONNECTOR, IAM

COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
DOCKERFILES = sorted((ROOT / "infra" / "docker").glob("*.Dockerfile"))
SAM_CONFIG = tomllib.loads((ROOT / "samconfig.toml").read_text(encoding="utf-8"))
PINNED = re.compile(r"[\w./-]+:\d+\.\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?")


def test_images_are_pinned():
    images = {each["image"] for each in COMPOSE["services"].values() if "image" in each}
    assert images
    assert all(PINNED.fullmatch(each) for each in images)


def test_services_are_built_from_the_dockerfiles():
    built = {each["build"]["dockerfile"] for each in COMPOSE["services"].values() if "build" in each}
    # That of wheels is made of a release: compose.yaml needs a checkout alone.
    of_wheels = {"infra/docker/keylane.Dockerfile"}
    assert built == {str(each.relative_to(ROOT)) for each in DOCKERFILES} - of_wheels


def test_the_cluster_consists_of_the_nodes_that_the_services_use():
    nodes = COMPOSE["x-addresses"]["KEYLANE_REDIS_NODES"].split(",")
    assert all(node in COMPOSE["services"]["cluster"]["command"] for node in nodes)
    assert {node.partition(":")[0] for node in nodes} == {
        name for name in COMPOSE["services"] if name.startswith("valkey-")
    }


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_a_dockerfile_is_pinned_copies_existing_files_and_does_not_run_as_root(dockerfile):
    text = re.sub(r"\\\n\s*", "", dockerfile.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    instructions = [line.partition(" ")[::2] for line in lines]
    bases = [rest.split(" AS ")[0] for name, rest in instructions if name == "FROM"]
    assert all(PINNED.fullmatch(each) for each in bases)
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for name, rest in instructions:
        if name == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                if source.startswith("dist/"):  # `make release` has made it
                    assert f"!{source}" in kept, source
                    continue
                assert (ROOT / source).exists(), source
                assert f"!{source.partition('/')[0]}" in kept, source
    assert [rest for name, rest in instructions if name == "USER"] == ["1000:1000"]


def test_the_jobs_image_and_package_have_the_ivy_and_the_connector_of_our_spark():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    [spark] = re.findall(r"^pyspark==(.+)$", pins, re.MULTILINE)
    assert f"<spark.version>{spark}</spark.version>" in (ROOT / "pom.xml").read_text(encoding="utf-8")
    names = {each.partition("==")[0] for each in job_package.list_requirements()}
    assert {"pyarrow", "confluent-kafka", "hiredis", "pydantic"} <= names
    assert not names & {"pyspark", "py4j"}


def test_a_package_of_the_job_with_another_jar_is_not_built(tmp_path, monkeypatch):
    tools = tmp_path / "tools" / "jars"
    tools.mkdir(parents=True)
    listed = jars.read(ROOT / jars.LIST)
    for name in listed:
        if name.startswith((*CONNECTOR, IAM)):
            (tools / name).write_bytes(b"another")
    monkeypatch.setenv("KEYLANE_TOOLS", str(tmp_path / "tools"))
    with pytest.raises(jars.WrongChecksum, match=r"aws-msk-iam-auth-.* has the SHA-256"):
        job_package.build(tmp_path / "job", ROOT / "keylane.toml", "3.11")
    assert not (tmp_path / "job" / "python.zip").exists()
    (tools / next(name for name in listed if name.startswith(IAM))).unlink()
    with pytest.raises(FileNotFoundError, match="make package-job"):
        job_package.build(tmp_path / "job", ROOT / "keylane.toml", "3.11")


def test_a_package_of_the_job_has_the_connector_of_its_spark(tmp_path, monkeypatch):
    """With the client of Kafka that this Spark was built with."""
    monkeypatch.setenv("KEYLANE_TOOLS", str(tmp_path / "tools"))
    monkeypatch.setattr(job_package, "_install", lambda *_: None)
    listed = jars.read(ROOT / jars.LIST)
    expected = {
        pyspark.__version__: {
            f"spark-sql-kafka-0-10_2.13-{pyspark.__version__}.jar",
            "kafka-clients-4.3.1.jar",
        },
        OLDER_SPARK: {f"spark-sql-kafka-0-10_2.13-{OLDER_SPARK}.jar", "kafka-clients-3.9.1.jar"},
    }
    assert all(name in listed for names in expected.values() for name in names)
    monkeypatch.setattr(jars, "verify", lambda *_: None)
    for spark, names in expected.items():
        with pytest.raises(FileNotFoundError, match=f"make package-job SPARK={spark}"):
            job_package.build(tmp_path / "job", ROOT / "keylane.toml", "3.11", spark)
        jars_dir(spark).mkdir(parents=True)
        others = {"commons-pool2-2.jar", "spark-token-provider-kafka-0-10_2.13-4.jar", f"{IAM}-2-all.jar"}
        for name in names | others:
            (jars_dir(spark) / name).touch()
        job_package.build(tmp_path / "job", ROOT / "keylane.toml", "3.11", spark)
        assert {each.name for each in (tmp_path / "job" / "jars").iterdir()} == names | others


def test_the_same_files_make_the_same_package_of_the_job(tmp_path, monkeypatch):
    monkeypatch.setenv("KEYLANE_TOOLS", str(tmp_path / "tools"))
    monkeypatch.setattr(jars, "verify", lambda *_: None)
    jars_dir().mkdir(parents=True)
    for name in (*CONNECTOR, IAM):
        (jars_dir() / f"{name}-1.jar").touch()
    times = iter((1_000_000_000, 2_000_000_000))

    def install(target, _):
        (target / "library.py").write_text("one = 1")
        os.utime(target / "library.py", (moment := next(times), moment))

    monkeypatch.setattr(job_package, "_install", install)
    for folder in ("one", "two"):
        job_package.build(tmp_path / folder, ROOT / "keylane.toml", "3.11")
    first, second = (tmp_path / folder / "python.zip" for folder in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()


def test_commands_and_pages_name_the_older_spark_that_is_supported():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"/spark-{OLDER_SPARK}/bin/python" in makefile
    for page in ("docs/operate/spark.md", "docs/operate/deploy.md"):
        assert f"make package-job SPARK={OLDER_SPARK}" in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("stage", ["default", "prod"])
def test_a_deployment_asks_before_it_makes_anything(stage):
    assert SAM_CONFIG[stage]["deploy"]["parameters"]["confirm_changeset"] is True


def test_the_trial_stack_is_small():
    overrides = SAM_CONFIG["default"]["deploy"]["parameters"]["parameter_overrides"]
    given = dict(each.split("=", 1) for each in overrides)
    known = {name: each["Default"] for name, each in template()["Parameters"].items()}
    assert given["CacheNodeType"].startswith("cache.t4g.")
    for name in ("CacheShards", "KafkaVolumeGiB", "ZoneCount", "JobCores", "JobMemoryGiB"):
        assert int(given[name]) < known[name], name


def test_the_workflow_runs_the_two_commands_of_the_gate():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    steps = [step for step in workflow["jobs"]["test"]["steps"] if "run" in step]
    always = [step["run"] for step in steps if "if" not in step]
    assert always[-2:] == ["make check", "make test"]
    assert [step["run"] for step in steps if step.get("if") == "github.event_name == 'schedule'"] == [
        "make long"
    ]


def test_the_guide_says_when_each_alarm_exists():
    """A row of its table is a condition of the template, and has all alarms with it."""
    page = (ROOT / "docs" / "operate" / "deploy.md").read_text(encoding="utf-8")
    section = page.partition("\n## Alarms\n")[2].partition("\n## ")[0]
    rows = [
        frozenset(re.findall(r"`(\w+)`", names))
        for names in re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
    ]
    alarms = of_type(template("infra/observability.yaml"), "AWS::CloudWatch::Alarm")
    by_condition: dict[str, set[str]] = {}
    for name, each in alarms.items():
        by_condition.setdefault(each.get("Condition", ""), set()).add(name)
    assert set(rows) == {frozenset(each) for each in by_condition.values()}
    assert f"{len(alarms)} alarms" in page


def test_a_command_for_production_repeats_the_overrides_that_it_replaces():
    """The first deployment has them for ever: what a later one leaves out keeps its value."""
    page = (ROOT / "docs" / "operate" / "deploy.md").read_text(encoding="utf-8").replace("\\\n", " ")
    first = next(each for each in page.splitlines() if each.startswith("$ sam deploy --config-env prod"))
    of_file = SAM_CONFIG["prod"]["deploy"]["parameters"]["parameter_overrides"]
    assert set(of_file) <= set(first.split())
