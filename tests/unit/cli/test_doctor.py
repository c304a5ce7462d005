"""`keylane doctor`: what its checks find, and what to do about it."""

from __future__ import annotations

from keylane_cli import doctor_checks


def test_the_doctor_says_what_to_do_about_an_api_that_is_away():
    [check] = doctor_checks.check_api("http://127.0.0.1:1", None)
    assert (check.result, check.name) == ("failed", "api")
    assert "keylane up" in check.advice


def test_the_doctor_looks_at_this_machine_without_a_stack(tmp_path):
    checks = {check.name: check for check in doctor_checks.check_machine(tmp_path, {})}
    assert {"java", "redis-server", "kafka", "port 8080"} <= set(checks)
    assert all(check.advice for check in checks.values() if check.result != "ok")


def test_the_doctor_asks_for_no_redis_and_no_ports_of_servers_that_are_elsewhere(tmp_path):
    given = {"KEYLANE_KAFKA_BOOTSTRAP": "k:9092", "KEYLANE_REDIS_NODES": "r:6379"}
    checks = {check.name for check in doctor_checks.check_machine(tmp_path, given)}
    assert checks & {"redis-server", "port 9092", "port 7000", "port 8080"} == {"port 8080"}


def test_the_doctor_does_not_look_at_servers_that_it_does_not_know():
    [check] = doctor_checks.check_redis({})
    assert (check.result, check.advice) == ("warning", "set KEYLANE_REDIS_NODES to look at Redis")
    assert list(doctor_checks.check_registry({})) == []
    [away] = doctor_checks.check_registry({"KEYLANE_SCHEMA_REGISTRY_URL": "http://127.0.0.1:1"})
    assert away.result == "failed"


def test_the_doctor_says_that_a_redis_cluster_does_not_answer():
    [check] = doctor_checks.check_redis({"KEYLANE_REDIS_NODES": "127.0.0.1:1"})
    assert (check.name, check.result) == ("redis cluster", "failed")
    assert check.found.startswith("127.0.0.1:1: ")
