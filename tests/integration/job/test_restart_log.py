"""What a job logs that restarts again and again: each line once a minute."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.servers.own import create_topic, eventually, produce
from tests.support import jobs

from keylane_local.process.ports import Ports

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """[job]
small_batch_records = 0
heartbeat_ms = 100
metrics = "openmetrics"
metrics_port = {port}
[topics.again]
where = "json is not null"
[views.again]
topic = "again"
key = "k"
[views.again.columns]
n = "count()"
"""
RESTARTS = 6
_VARYING = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|0x[0-9a-f]+|[0-9]+")


@pytest.mark.long
def test_restarts_for_the_same_reason_log_each_line_once_a_minute(
    kafka: str, redis_cluster: str, tmp_path: Path
):
    """Spark's workers can't begin: each task fails, of the topic and of the view."""
    port = Ports().any()
    create_topic(kafka, "again", 1)
    environment = {"PYSPARK_PYTHON": "/bin/false"}
    with jobs.running(kafka, redis_cluster, tmp_path, CONFIG.format(port=port), **environment) as job:
        produce(kafka, "again", [(b"1", b'{"k":"a"}')])
        began = time.monotonic()
        job.wait_for("keylane: ready")
        names = ("keylane_topic_restarts_total", "again"), ("keylane_view_restarts_total", "again")
        eventually(lambda: all(jobs.scrape(port).get(name, 0) >= RESTARTS for name in names))
        minutes = (time.monotonic() - began) / 60
        lines = [_VARYING.sub("#", line.strip()) for line in job.lines if line.strip()]
    # A reason is known once it has come, and Spark has two names for this one.
    most = 2 * (2 + minutes)
    assert [line for line in lines if "restarts in # s: unexpected error" in line]
    # Other tests' topics in the same Redis have a line each, which differ in the number of their names.
    of_others = "is not in this job's config but has state in Redis"
    often = Counter(
        line for line in lines if (line.startswith("keylane:") and of_others not in line) or "ERROR" in line
    )
    assert max(often.values()) <= most, often.most_common(3)
    # The trace of the topic's error, and of the view's.
    assert lines.count("Traceback (most recent call last):") <= 2 * most
