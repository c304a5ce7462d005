"""The files for containers, without an engine: what tests/docker shows with one, as far as reading can."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.docker.stand_ins import image_names, stand_ins

from keylane_local import jars
from keylane_local.tools import OLDER_SPARK
from keylane_spark.engine.connector_jars import CONNECTOR, IAM

ROOT = Path(__file__).parents[3]
SERVICES = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]
RUNS_ONCE = {"cluster"}
OF_JOB = (ROOT / "infra/docker/job.Dockerfile").read_text("utf-8").replace("\\\n", "")
[FETCHING] = [line for line in OF_JOB.splitlines() if "org.apache.ivy.Main" in line]
RECIPES = sorted((ROOT / "infra" / "docker").glob("*.Dockerfile"))


def test_every_service_that_stays_says_when_it_is_ready():
    assert {name for name, service in SERVICES.items() if "healthcheck" not in service} == RUNS_ONCE


def test_no_health_check_starts_a_jvm():
    """Kafka's own tools do, for a second of a core each time."""
    for name, service in SERVICES.items():
        assert not re.search(r"java|kafka-[a-z-]+\.sh", str(service.get("healthcheck"))), name


def test_every_service_waits_for_those_that_it_needs():
    for name in ("job", "server"):
        assert SERVICES[name]["depends_on"] == {
            "kafka": {"condition": "service_healthy"},
            "cluster": {"condition": "service_completed_successfully"},
        }


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_user_of_an_image_is_in_its_list_of_users(recipe):
    """Without an entry Java's user.home is `?`, and Spark does not start."""
    text = recipe.read_text("utf-8")
    user = re.search(r"^USER (\d+):\1$", text, re.MULTILINE)
    assert user, "the image runs as root"
    assert re.search(rf"^RUN useradd --create-home --uid {user[1]} ", text, re.MULTILINE)


def test_image_of_the_job_keeps_the_jars_that_spark_needs():
    moved = re.search(r"&& mv (.*?) +/keylane/jars", OF_JOB)
    assert moved
    assert moved[1].split() == [f"{name}*" for name in (*CONNECTOR, IAM)]


def test_image_of_the_job_checks_its_jars_before_it_keeps_them():
    steps = [step.split() for step in FETCHING.split("&&")]
    retrieve, check, keep = (
        next(number for number, step in enumerate(steps) if word in step)
        for word in ("org.apache.ivy.Main", "jars.py", "mv")
    )
    assert retrieve < check < keep
    assert steps[check] == ["python", "jars.py", steps[keep - 1][-1], "jars.sha256"]
    copies = [line.split()[1:-1] for line in OF_JOB.splitlines() if line.startswith("COPY")]
    copied = {source for sources in copies for source in sources}
    assert {str(jars.LIST), "local/keylane_local/jars.py"} <= copied


def test_the_check_in_the_image_is_a_program_that_needs_no_other_module_and_names_the_jar(tmp_path):
    program = tmp_path / "jars.py"
    program.write_bytes(Path(jars.__file__).read_bytes())
    (tmp_path / "kafka-clients-1.jar").write_bytes(b"another")
    (tmp_path / "list").write_text(f"{'0' * 64}  kafka-clients-1.jar\n")
    command = [sys.executable, "-I", str(program), str(tmp_path), str(tmp_path / "list")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[0]) == (1, "kafka-clients-1.jar")
    (tmp_path / "list").write_text(jars.render(jars.checksums(tmp_path)))
    assert subprocess.run(command, check=False).returncode == 0


def test_every_jar_and_archive_that_ivy_is_asked_for_has_a_checksum():
    listed = jars.read(ROOT / jars.LIST)
    assert all(re.fullmatch(r"[0-9a-f]{64}", each) for each in listed.values())
    for pom in ("pom.xml", "tests/registry/pom.xml"):
        text = (ROOT / pom).read_text("utf-8").replace("${spark.version}", OLDER_SPARK)
        wanted = re.findall(r"<artifactId>([^<*]+)</artifactId>\s*<version>([^<]+)</version>", text)[1:]
        assert wanted
        for name, version in wanted:
            assert any(each.startswith(f"{name}-{version}") for each in listed), name


def test_image_of_the_job_signs_in_at_msk_with_iam():
    """Spark's own reader with AWS' jar, everything else with AWS' package."""
    requirements = (ROOT / "infra/docker/job-requirements.txt").read_text("utf-8")
    assert re.search(r"^aws-msk-iam-sasl-signer-python==", requirements, re.MULTILINE)
    assert any(
        each.startswith(f"{IAM}-") and each.endswith("-all.jar") for each in jars.read(ROOT / jars.LIST)
    )


def test_image_of_the_job_keeps_no_cache_of_ivy():
    """A layer that deletes it later would still have it: 98 MB."""
    cache = re.search(r"-cache (\S+)", FETCHING)
    assert cache
    assert re.search(rf"&& rm -r .*{cache[1]}\b", FETCHING)


def test_addresses_for_sam_local_are_those_of_the_services():
    variables = json.loads((ROOT / "events" / "env.json").read_text("utf-8"))["Parameters"]
    given = SERVICES["job"]["environment"]
    for name in ("KEYLANE_KAFKA_BOOTSTRAP", "KEYLANE_REDIS_NODES"):
        assert variables[name] == given[name]
        assert {each.partition(":")[0] for each in variables[name].split(",")} <= SERVICES.keys()


def test_every_image_has_a_stand_in():
    repositories = {each.repository for each in stand_ins(Path("jars"))}
    assert {name.partition(":")[0] for name in image_names()} == repositories
