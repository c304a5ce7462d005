"""`keylane doctor`: what its checks find, and what to do about it."""

from __future__ import annotations

import ssl

import pytest
from tests.servers.registry_double import RegistryDouble
from tests.support.certificates import certify

from keylane_cli import doctor_checks

REGISTRY = "KEYLANE_SCHEMA_REGISTRY"


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


def test_the_doctor_asks_a_registry_with_the_login_that_the_service_has():
    with RegistryDouble() as served:
        served.has("/subjects?limit=1", [])
        served.login = "reader", "hunter2"
        url = {f"{REGISTRY}_URL": served.url}
        login = {f"{REGISTRY}_USERNAME": "reader", f"{REGISTRY}_PASSWORD": "hunter2"}
        [fits] = doctor_checks.check_registry(url | login)
        [none] = doctor_checks.check_registry(url)
        [wrong] = doctor_checks.check_registry(url | login | {f"{REGISTRY}_PASSWORD": "hunter3"})
    assert (fits.result, fits.found) == ("ok", "answers")
    for each in (none, wrong):
        assert (each.result, each.found) == ("failed", "rejects the login with 401")
        assert f"{REGISTRY}_USERNAME" in each.advice
    assert "hunter" not in f"{fits}{none}{wrong}"


def test_the_doctor_trusts_the_authority_that_the_service_trusts(tmp_path):
    certificate, key = certify(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with RegistryDouble(context) as served:
        served.has("/subjects?limit=1", [])
        url = {f"{REGISTRY}_URL": served.url}
        [trusted] = doctor_checks.check_registry(url | {f"{REGISTRY}_CA_FILE": str(certificate)})
        [unknown] = doctor_checks.check_registry(url)
    assert trusted.result == "ok"
    assert "certificate could not be verified: self-signed certificate" in unknown.found
    assert "..._CA_FILE" in unknown.advice


@pytest.mark.parametrize("url", ["http://host:99999", "http://[::1", "http://user:hunter2@host", "host"])
def test_the_doctor_says_that_the_address_of_a_registry_is_none(url: str):
    [check] = doctor_checks.check_registry({f"{REGISTRY}_URL": url})
    assert check.result == "failed"
    assert f"{REGISTRY}_URL is not an http or https URL" in check.found
    assert "hunter2" not in check.found


def test_the_doctor_shows_no_password_of_an_address():
    [check] = doctor_checks.check_api("http://ann:hunter2@127.0.0.1:1", None)
    assert check.found.startswith("http://127.0.0.1:1: ")
