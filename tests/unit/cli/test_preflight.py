"""What `keylane up` says before it starts anything."""

from __future__ import annotations

import pytest

from keylane_cli import doctor_checks, preflight
from keylane_cli.doctor_checks import Check
from keylane_cli.survey import cluster
from keylane_local import tools
from keylane_local.errors import BadInput, StackError, ToolMissing
from keylane_local.stack.plan import StackOptions

THEIRS = StackOptions(outside_kafka="k:1", outside_redis="r:1")


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A configuration of the topic orders, and a Kafka that has it and a Redis that evicts nothing."""
    monkeypatch.delenv("KEYLANE_CREATE_TOPICS", raising=False)

    def find_topics(_, wanted):
        return {"orders": 3}, [f"no topic '{each}'" for each in wanted if each != "orders"]

    monkeypatch.setattr(cluster, "find_topics", find_topics)
    monkeypatch.setattr(
        doctor_checks, "check_redis", lambda _: [Check("maxmemory-policy", "ok", "noeviction")]
    )
    file = tmp_path / "keylane.toml"
    file.write_text("[topics.orders]\n")
    return file


def test_topics_that_kafka_has_may_be_served(config):
    assert preflight.check(THEIRS, config) == {"orders": 3}


def test_a_topic_that_kafka_lacks_ends_the_start_unless_the_job_creates_it(config, monkeypatch):
    config.write_text("[topics.order]\n")
    with pytest.raises(BadInput, match=r"no topic 'order'\. Correct .*, or let"):
        preflight.check(THEIRS, config)
    config.write_text("[job]\ncreate_topics = true\n[topics.order]\n")
    assert preflight.check(THEIRS, config)
    monkeypatch.setenv("KEYLANE_CREATE_TOPICS", "false")
    with pytest.raises(BadInput):
        preflight.check(THEIRS, config)


def test_a_redis_that_evicts_keys_ends_the_start_and_one_that_does_not_say_does_not(config, monkeypatch):
    found = [Check("maxmemory-policy", "failed", "allkeys-lru", "set it to noeviction")]
    monkeypatch.setattr(doctor_checks, "check_redis", lambda _: found)
    with pytest.raises(StackError, match="maxmemory-policy: allkeys-lru: set it to noeviction"):
        preflight.check(THEIRS, config)
    found[0] = Check("maxmemory-policy", "warning", "cannot be read")
    assert preflight.check(THEIRS, config)


def test_all_programs_that_are_missing_are_named_with_what_installs_them(monkeypatch):
    monkeypatch.setattr(tools, "find_java", lambda: None)
    monkeypatch.setattr(tools, "find_redis", lambda: None)
    with pytest.raises(ToolMissing, match=r"openjdk-17-jre-headless.*; .*install redis-server"):
        preflight.check(StackOptions(), None)
    with pytest.raises(ToolMissing) as raised:
        preflight.check(THEIRS, None)
    assert "redis" not in str(raised.value)
    monkeypatch.setattr(tools, "find_redis", lambda: "/usr/bin/redis-server")
    with pytest.raises(ToolMissing, match="Java"):
        preflight.check(StackOptions(job=False), None)


def test_a_file_that_is_wrong_ends_the_start_with_its_line(config):
    config.write_text("[topics.orders]\nstrips = 2\n")
    with pytest.raises(BadInput, match=r"keylane\.toml:2: topics\.orders\.strips"):
        preflight.check(THEIRS, config)
