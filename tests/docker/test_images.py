"""The images of infra/docker, in the stack of compose.yaml."""

from __future__ import annotations

import json

import httpx
import pytest
from tests.e2e.client import Client

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]
SERVICES = {"kafka", "valkey-1", "valkey-2", "valkey-3", "registry", "job", "server"}


def test_every_service_is_healthy_and_was_never_restarted(compose):
    listed = compose.run("ps", "--all", "--format", "json").stdout.splitlines()
    services = {each["Service"]: each for each in map(json.loads, listed)}
    assert {name for name, each in services.items() if each["Health"] == "healthy"} == SERVICES
    assert services["cluster"]["ExitCode"] == 0
    assert compose.restarts() == [0] * len(services)


@pytest.mark.parametrize("service", ["job", "server"])
def test_process_has_no_privileges_and_a_folder_of_its_own(compose, service):
    assert compose.inside(service, "id", "-u").stdout.strip() == "1000"
    home = compose.inside(service, "sh", "-c", "getent passwd 1000 | cut -d: -f6").stdout.strip()
    assert compose.inside(service, "test", "-w", home).returncode == 0, home


def test_image_of_the_server_has_the_console(compose):
    page = httpx.get(f"{compose.url}/console/", timeout=30)
    assert page.headers["Content-Type"].startswith("text/html")


def test_image_of_the_server_has_no_spark_and_that_of_the_job_no_cache(compose):
    assert compose.inside("server", "python", "-c", "import pyspark").returncode == 1
    assert compose.inside("job", "sh", "-c", "ls -d /tmp/ivy /root/.cache").returncode != 0
    kept = compose.inside("job", "ls", "/keylane/jars").stdout
    assert "spark-sql-kafka" in kept
    assert "aws-msk-iam-auth" in kept


def test_what_is_written_is_read_at_its_position(compose):
    client = Client(compose.url)
    try:
        position = client.put("flights", b"images", b'{"dest": "BRN"}')
        read = client.get("flights", b"images", Keylane_Min_Position=position, Prefer="wait=20")
        assert (read.status, read.json) == (200, {"dest": "BRN"})
    finally:
        client.close()


@pytest.mark.parametrize(
    ("service", "packages"),
    [
        ("job", "opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http, kafka, prometheus_client"),
        ("server", "opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http, prometheus_client"),
    ],
)
def test_image_has_the_packages_that_a_setting_asks_for(compose, service, packages):
    """They are imported late, so an image without them would start."""
    done = compose.inside(service, "python", "-c", f"import {packages}")
    assert done.returncode == 0, done.stderr


def test_workers_of_the_job_are_forked_by_a_daemon_that_has_imported_everything(compose):
    started = compose.inside("job", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    assert "keylane_spark.stream.worker_daemon" in started
