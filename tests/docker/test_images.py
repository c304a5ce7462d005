"""The images of infra/docker, in the stack of compose.yaml."""

from __future__ import annotations

import json

import httpx
import pytest

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]
SERVICES = {"kafka", "valkey-1", "valkey-2", "valkey-3", "job", "front"}


def test_every_service_is_healthy_and_was_never_restarted(compose):
    listed = compose.run("ps", "--all", "--format", "json").stdout.splitlines()
    services = {each["Service"]: each for each in map(json.loads, listed)}
    assert {name for name, each in services.items() if each["Health"] == "healthy"} == SERVICES
    assert services["cluster"]["ExitCode"] == 0


@pytest.mark.parametrize("service", ["job", "front"])
def test_process_has_no_privileges_and_a_folder_of_its_own(compose, service):
    assert compose.inside(service, "id", "-u").stdout.strip() == "1000"
    home = compose.inside(service, "sh", "-c", "getent passwd 1000 | cut -d: -f6").stdout.strip()
    assert compose.inside(service, "test", "-w", home).returncode == 0, home


def test_the_front_serves_the_console(compose):
    page = httpx.get(f"{compose.url}/console/", timeout=30)
    assert page.headers["Content-Type"].startswith("text/html")


def test_image_of_the_front_has_no_spark_and_that_of_the_job_no_cache(compose):
    assert compose.inside("front", "python", "-c", "import pyspark").returncode == 1
    assert compose.inside("job", "sh", "-c", "ls -d /tmp/ivy /root/.cache").returncode != 0
    assert "spark-sql-kafka" in compose.inside("job", "ls", "/keylane/jars").stdout
