"""A Schema Registry that does not answer: what it costs a request, and the requests after it."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest
from tests.servers.own import eventually
from tests.servers.registry_double import RegistryDouble, client_of
from tests.support.fakes import FakeTime

from keylane.adapters.registry.circuit import LONGEST_OPEN_S, Circuit
from keylane.errors import RegistryUnavailable
from keylane.ports import Deadline, WaitBudget

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_MS = 2_000


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


def fail(circuit: Circuit, time: FakeTime, cause: Exception, given_ms: float = TIMEOUT_MS) -> None:
    """Have a request fail that had so much time."""
    with (
        pytest.raises(RegistryUnavailable, match="away"),
        circuit.attempt(Deadline.after_ms(given_ms, time.clock)),
    ):
        raise RegistryUnavailable("away") from cause


def answers(circuit: Circuit, time: FakeTime) -> bool:
    """Whether a request is let through; it is answered then."""
    try:
        with circuit.attempt(Deadline.after_ms(TIMEOUT_MS, time.clock)):
            return True
    except RegistryUnavailable:
        return False


@pytest.mark.parametrize("cause", [TimeoutError(), ConnectionRefusedError(), ConnectionResetError()])
def test_after_a_failure_requests_are_refused_with_its_error_until_one_is_answered(time, cause):
    circuit = Circuit(TIMEOUT_MS)
    fail(circuit, time, cause)
    time.move(TIMEOUT_MS / 1000 - 0.5)
    with (
        pytest.raises(RegistryUnavailable, match="away") as refused,
        circuit.attempt(Deadline.after_ms(TIMEOUT_MS, time.clock)),
    ):
        pytest.fail("the registry was asked")
    assert refused.value.retry_after_s == 1
    time.move(0.5)
    assert answers(circuit, time)
    with circuit.attempt(Deadline.after_ms(TIMEOUT_MS, time.clock)):
        assert answers(circuit, time), "it is closed: not one at a time"


def test_one_request_at_a_time_tries_again(time):
    circuit = Circuit(TIMEOUT_MS)
    fail(circuit, time, TimeoutError())
    time.move(TIMEOUT_MS / 1000)
    with circuit.attempt(Deadline.after_ms(TIMEOUT_MS, time.clock)):
        assert not answers(circuit, time)
    fail(circuit, time, TimeoutError())
    assert not answers(circuit, time)
    time.move(TIMEOUT_MS / 1000)
    assert answers(circuit, time)


def test_the_circuit_is_open_for_some_seconds_at_most(time):
    circuit = Circuit(60_000)
    fail(circuit, time, TimeoutError(), 60_000)
    time.move(LONGEST_OPEN_S)
    assert answers(circuit, time)


@pytest.mark.parametrize(
    ("cause", "given_ms"),
    [(TimeoutError(), TIMEOUT_MS / 2 - 1), (ValueError("no JSON"), TIMEOUT_MS)],
    ids=["what many schemas have left of a request's time", "an answer that is not usable"],
)
def test_what_says_nothing_of_the_registry_opens_no_circuit(time, cause, given_ms):
    circuit = Circuit(TIMEOUT_MS)
    fail(circuit, time, cause, given_ms)
    assert answers(circuit, time)


def test_all_that_a_request_waits_for_shares_one_limit_and_other_time_does_not_count(time):
    budget = WaitBudget(2_000, time.clock)
    for left_s in (1.5, 1.0):
        with budget.asking():
            time.move(0.5)
        time.move(60)
        assert budget.left_s == left_s
    with budget.asking() as deadline:
        time.move(5)
        assert not deadline.remaining_s
    with budget.asking() as deadline:
        assert not deadline.remaining_s


@pytest.fixture
def served() -> Iterator[RegistryDouble]:
    with RegistryDouble() as double:
        double.has("/schemas/ids/7", {"schema": '"int"'})
        yield double


def say_nothing(_out, _time: FakeTime) -> None:
    threading.Event().wait(5)


def stop_after_the_head(out, _time: FakeTime) -> None:
    out.write(b"HTTP/1.1 200 OK\r\n\r\n")
    out.flush()
    threading.Event().wait(5)


def trickle(out, time: FakeTime) -> None:
    """Send a byte now and then: each comes in time, the whole answer does not."""
    out.write(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(10):
        time.move(0.01)
        out.write(b" ")
        out.flush()
    threading.Event().wait(5)


@pytest.mark.parametrize("answer", [say_nothing, stop_after_the_head, trickle])
def test_a_registry_that_does_not_end_its_answer_is_asked_once(time, served: RegistryDouble, answer):
    served.answers["/schemas/ids/8"] = lambda out: answer(out, time)
    client = client_of(served.url, 100)
    for _ in range(3):
        with pytest.raises(RegistryUnavailable, match="in time"):
            client.schema(8, Deadline.after_ms(100, time.clock))
    eventually(lambda: bool(served.asked))
    assert served.asked == ["/schemas/ids/8"]
    time.move(0.2)
    assert client.schema(7, Deadline.after_ms(20_000, time.clock)).text == '"int"'


def test_addresses_of_a_name_share_the_time(served: RegistryDouble, monkeypatch: pytest.MonkeyPatch):
    """The first one accepts nothing: it must not take the time of the one that answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as first:
        first.connect(full.getsockname())
        addresses = [full.getsockname(), ("127.0.0.1", int(served.url.rpartition(":")[2]))]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        client = client_of(served.url, 2_000)
        assert client.schema(7, Deadline.after_ms(2_000, FakeTime().clock)).text == '"int"'
