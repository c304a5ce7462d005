"""Two jobs with disjoint topics on one Redis, of two versions: neither touches what is the other's."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from redis import Redis
from tests.servers.own import create_topic, eventually
from tests.support import jobs
from tests.support import lanes as t
from tests.support.jobs import RunningJob, State, Traffic

import keylane_spark
from keylane.state import redis_keys
from keylane.state.redis_keys import COPY_TAGS, RECORD_TAG
from keylane_spark.lanes.function_library import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane.model.records import Watermark

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]  # five starts of Spark

TROUBLE = "ready:", "restarts in", "opens its lanes again", "written again", "is removed", "INCOMPLETE"
CONFIG = """\
[job]
heartbeat_ms = 100
small_batch_records = 500
sweep_keys_per_s = 1000000
[topics."{topic}"]
{options}
"""


@dataclass
class Side:
    """One of the two jobs, with its topic. Another partitioner than the config's makes strays."""

    kafka: str
    redis: str
    topic: str
    folder: Path
    code: Path | None = None
    """Another version of the job's code."""
    options: str = ""
    job: RunningJob = field(init=False)
    runs: list[RunningJob] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        create_topic(self.kafka, self.topic, 3)
        self.state = State(self.redis, self.topic)
        terms = {"partitioner": "consistent_random", "timeout_ms": 10_000}
        self.traffic = Traffic(self.kafka, self.state, self.topic, **terms)
        self.traffic.write_some(3_000)

    def start(self) -> None:
        """Start the job, or the next one, and wait until it has written everything."""
        config = CONFIG.format(topic=self.topic, options=self.options)
        environment = {} if self.code is None else {"PYTHONPATH": str(self.code)}
        self.job = jobs.start(self.kafka, self.redis, self.folder, config, **environment)
        self.runs.append(self.job)
        self.job.wait_for("keylane: ready")
        self.wait_until_served()

    def wait_until_served(self) -> None:
        """Wait until the lanes are complete as of now."""
        now_ms = t.CLOCK.now_ms()
        eventually(lambda: all(mark and mark.complete_as_of_ms > now_ms for mark in self.marks))

    @property
    def marks(self) -> list[Watermark | None]:
        return list(self.state.watermarks().values())

    @property
    def records(self) -> dict[bytes, bytes | None]:
        """The topic's layout, record and epoch in Redis, three times each."""
        with t.client(self.redis) as client:
            names = [
                name(self.topic, tag)
                for tag in (RECORD_TAG, *COPY_TAGS)
                for name in (redis_keys.layout_key, redis_keys.record_key, redis_keys.epoch_key)
            ]
            return {name: client.get(name) for name in names}

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Assert that the job goes on, whatever its neighbour does in the block, as if it were alone."""
        self.wait_until_served()
        records, strays, said = self.records, self.state.strays, len(self.job.lines)
        assert strays
        assert None not in records.values()
        yield
        self.wait_until_served()
        assert self.records == records
        assert all(self.state.strays.get(name, 0) >= count for name, count in strays.items())
        assert {mark.epoch for mark in self.marks} == {self.state.record.owner.epoch}
        assert not any(mark.superseded or mark.incomplete for mark in self.marks)
        assert self.job.process.poll() is None
        lines = [line for line in self.job.lines[said:] if line.startswith("keylane: ")]
        assert not [line for line in lines if any(word in line for word in TROUBLE)]


@pytest.fixture
def other_version(tmp_path) -> Path:
    """The code of the job with another library: one line more, so that its functions have other names."""
    code = tmp_path / "other"
    package = Path(keylane_spark.__file__).parent
    shutil.copytree(package, code / "keylane_spark", ignore=shutil.ignore_patterns("__pycache__"))
    with (code / "keylane_spark" / "lanes" / "library" / "removal.lua").open("a") as library:
        library.write("-- Another version.\n")
    return code


@pytest.fixture
def sides(kafka, redis_cluster, other_version, tmp_path):
    """The names of their topics differ by what a pattern may take for any character, or for the end."""
    one = Side(kafka, redis_cluster, "two.jobs", tmp_path / "one", other_version)
    other = Side(kafka, redis_cluster, "two-jobs", tmp_path / "another")
    yield one, other
    for side in (one, other):
        for job in side.runs:
            job.end()
        side.state.close()


@pytest.fixture
def libraries(cluster):
    """The versions of the library on each primary."""

    def found() -> list[set[str]]:
        versions = []
        for node in cluster.nodes:
            with Redis(port=node.port) as client:
                if client.info("replication")["role"] == "master":
                    listed = [dict(zip(*[iter(each)] * 2, strict=True)) for each in client.function_list()]
                    names = {each[b"library_name"].decode() for each in listed}
                    versions.append({name[-8:] for name in names if name.startswith("keylane_")})
        return versions

    return found


def test_two_jobs_are_started_killed_rebuilt_and_upgraded_under_each_other(sides, libraries):
    one, other = sides
    one.start()
    with one.traffic:
        with one.undisturbed():
            other.start()
            named = f"topic '{one.topic}' is not in this job's config but has state in Redis"
            other.job.wait_for(named)
        with other.traffic:
            # The start of the second has removed the library of the first, which loads it again.
            eventually(lambda: all(len(found) == 2 and VERSION in found for found in libraries()))
            with other.undisturbed():
                one.job.kill()
                one.options = "stripes = 2"
                one.start()
                eventually(lambda: one.state.layout.stripes == 2)
                eventually(lambda: one.state.keys_of(1) == set())
                eventually(lambda: one.state.record.remove == ())
            with one.undisturbed():
                other.job.end()
                other.start()
            with other.undisturbed():
                one.job.end()
                one.code = None
                one.start()
                assert all(found == {VERSION} for found in libraries())
    for side in sides:
        side.traffic.check()
