"""The job as the chart of infra/kubernetes says: executors are pods of a stand-in for Kubernetes' API.

Each is a process. What the driver asks for, what it may ask, and what executors start with are the chart's,
as helm renders it. Images, DNS, volumes and scheduling are not tried.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.servers.kubernetes import own_kubernetes
from tests.servers.own import create_topic, eventually
from tests.support import jobs
from tests.support.jobs import State, Traffic

from keylane_build import chart
from keylane_local.process.ports import HOST, Ports
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.kubernetes import KubernetesApi, Pod

# Executors are JVMs that start again and again, where other tests run too.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

RENDERED = project_root() / chart.CASES / "default.yaml"
OBJECTS = {
    (each["kind"], each["metadata"]["name"]): each
    for each in yaml.safe_load_all(RENDERED.read_text(encoding="utf-8"))
}
FILES = OBJECTS["ConfigMap", "keylane-job"]["data"]
TOPIC = "on-kubernetes"
EXECUTORS = 2


def rules() -> list[dict[str, list[str]]]:
    """What the driver may do."""
    granted: list[dict[str, list[str]]] = OBJECTS["Role", "keylane-job"]["rules"]
    return granted


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory):
    recipe = (project_root() / "infra/docker/job.Dockerfile").read_text(encoding="utf-8")
    path = re.search(r"^ENV PYTHONPATH=(\S+)$", recipe, re.MULTILINE)[1]
    image = {"PYTHONPATH": path.replace("/keylane/", f"{project_root()}/"), "PATH": "/usr/bin:/bin"}
    with own_kubernetes(tmp_path_factory.mktemp("kubernetes"), rules(), image) as api:
        yield api


def config(api: KubernetesApi, template: Path) -> str:
    """The chart's config, with this machine's addresses and small executors, whose template is written."""
    ports = Ports()
    template.write_text(FILES["executor.yaml"], encoding="utf-8")
    settings = tomllib.loads(FILES["keylane.toml"])["spark"]
    settings |= {
        "spark.master": api.master,
        "spark.kubernetes.executor.podTemplateFile": str(template),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.driver.port": ports.any(),
        "spark.driver.blockManager.port": ports.any(),
        "spark.driver.memory": "512m",
        "spark.executor.instances": EXECUTORS,
        "spark.executor.cores": 1,
        "spark.executor.memory": "512m",
    }
    lines = "\n".join(f'"{name}" = {json.dumps(value)}' for name, value in settings.items())
    return f"[job]\nsmall_batch_records = 0\nheartbeat_ms = 100\n[topics.{TOPIC}]\n[spark]\n{lines}\n"


def running(api: KubernetesApi) -> list[Pod]:
    return [pod for pod in api.pods.values() if pod.is_running]


def test_executors_write_and_are_replaced_and_end_with_the_driver(kubernetes, kafka, redis_cluster, tmp_path):
    def start() -> jobs.RunningJob:
        environment = {"PYSPARK_PYTHON": sys.executable}
        return jobs.start(
            kafka, redis_cluster, tmp_path, config(kubernetes, tmp_path / "executor.yaml"), **environment
        )

    def has_executors() -> bool:
        return len(running(kubernetes)) == EXECUTORS

    create_topic(kafka, TOPIC, 4)
    state = State(redis_cluster, TOPIC)
    traffic = Traffic(kafka, state, TOPIC, timeout_ms=10_000)
    traffic.write_some(2_000)
    job = start()
    try:
        job.wait_for("keylane: ready")
        eventually(has_executors)
        eventually(lambda: is_complete(state, 2_000))
        with traffic:
            victim = running(kubernetes)[0]
            victim.program.kill()
            eventually(lambda: len(kubernetes.created) > EXECUTORS)
            eventually(has_executors)
        traffic.check()
        job.kill()
        eventually(lambda: not running(kubernetes))
        left = set(kubernetes.pods)
        with traffic:
            job = start()
            job.wait_for("keylane: ready")
            eventually(has_executors)
        traffic.check()
    finally:
        job.end()
    assert job.exit_code() == 0
    assert "keylane: stopped" in job.lines[-1]
    assert left
    assert kubernetes.pods.keys() == left
    assert kubernetes.refused == set()
    granted = {(verb, what) for rule in rules() for verb in rule["verbs"] for what in rule["resources"]}
    assert granted == kubernetes.asked
    for pod in kubernetes.created:
        check(pod)


def is_complete(state: State, count: int) -> bool:
    marks = state.watermarks().values() if state.layout else ()
    return sum(mark.next_offset for mark in marks if mark) >= count


def check(pod: Pod) -> None:
    """Compare a pod that Spark has asked for with the chart."""
    template = yaml.safe_load(FILES["executor.yaml"])
    spec, wanted = pod.document["spec"], template["spec"]
    assert pod.document["metadata"]["labels"].items() >= template["metadata"]["labels"].items()
    settings = tomllib.loads(FILES["keylane.toml"])["spark"]
    container, of_template = pod.container, wanted["containers"][0]
    assert container["image"] == settings["spark.kubernetes.container.image"]
    assert container["securityContext"] == of_template["securityContext"]
    assert container["workingDir"] == of_template["workingDir"]
    assert container["resources"]["requests"]["cpu"] == settings["spark.kubernetes.executor.request.cores"]
    assert spec["serviceAccountName"] == wanted["serviceAccountName"]
    assert spec["securityContext"].items() >= wanted["securityContext"].items()
    [owner] = pod.document["metadata"]["ownerReferences"]
    assert owner["name"] == settings["spark.kubernetes.driver.pod.name"]
