"""Callers that ask at once, ask together: one request, and for each its own result or error."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.unit.client.api_double import QUICK, URL, found, problem, row, written

from keylane_client import (
    AsyncClient,
    Client,
    KeyAbsent,
    Position,
    ProblemError,
    RequestRefused,
    Unavailable,
    Unreachable,
    Written,
)
from keylane_client.batching import MOST_PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

READ, PUSH = "/v1/topics/t/keys:read", "/v1/topics/t"


class Service:
    """An API that has the records `k0`, `k1`, ..., and takes writes. `answers`: others, by path, first."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = {name.replace("_", "/"): each for name, each in answers.items()}
        self.asked: list[tuple[str, str]] = []
        self.parts: list[list[str]] = []
        self.gate: asyncio.Event | None = None
        self._lock = threading.Lock()

    def client(self) -> Client:
        return Client(URL, options=QUICK, transport=httpx.MockTransport(self.answer))

    def async_client(self) -> AsyncClient:
        return AsyncClient(URL, options=QUICK, transport=httpx.MockTransport(self.answer_in_loop))

    async def answer_in_loop(self, request: httpx.Request) -> httpx.Response:
        if self.gate is not None:
            await self.gate.wait()
        return self.answer(request)

    def answer(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            path = request.url.path
            self.asked.append((request.method, path))
            own = self.answers.get(path.rpartition("/")[2])
            if own:
                answer = own.pop(0)
                if isinstance(answer, Exception):
                    raise answer
                return answer
            if path == READ:
                return self._many(json.loads(request.content)["keys"])
            if path == PUSH:
                return self._push(json.loads(request.content)["records"])
            if request.method in {"PUT", "DELETE"}:
                return written(9)
            key = path.rpartition("/")[2]
            return problem(404, "key-absent") if key == "none" else found({"k": key})

    def _many(self, keys: list[str]) -> httpx.Response:
        self.parts.append(keys)
        rows = [{"key": k, "key_format": "text", "absent": True} if k == "none" else row(k) for k in keys]
        return httpx.Response(200, json={"records": rows, "watermarks": {"2": 8}, "age_ms": 3})

    def _push(self, records: list[dict[str, Any]]) -> httpx.Response:
        keys = [base64.b64decode(each["key"]).decode() for each in records]
        self.parts.append(keys)
        offsets = [_result_of(key, number) for number, key in enumerate(keys)]
        return httpx.Response(200, json={"offsets": offsets})


def _result_of(key: str, number: int) -> dict[str, Any]:
    failed = {"partition": None, "offset": None, "error": "no", "code": "X"}
    if key == "refused":
        return failed | {"error_code": 50002, "retriable": False}
    if key == "uncertain":
        return failed | {"error_code": 50003, "retriable": True, "uncertain": True}
    if key == "superseded":
        return failed | {"error_code": 50002, "superseded": True}
    return {"partition": 2, "offset": number, "error_code": None, "error": None}


def run(service: Service, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    async def inside() -> Any:
        async with service.async_client() as client:
            return await work(client.batching().topic("t"))

    return asyncio.run(inside())


async def all_of(*calls: Coroutine[Any, Any, Any]) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)


def test_gets_of_one_tick_are_one_read_and_each_has_its_record():
    service = Service()
    got = run(service, lambda topic: all_of(*(topic.get(f"k{n}") for n in range(20)), topic.get("none")))
    assert [each.value["k"] for each in got[:-1]] == [f"k{n}" for n in range(20)]
    assert got[-1] is None
    assert service.asked == [("POST", READ)]


def test_the_same_key_is_asked_for_once():
    service = Service()
    got = run(service, lambda topic: all_of(topic.get("k1"), topic.get("k1"), topic.get(b"k1")))
    assert [each.value["k"] for each in got] == ["k1"] * 3
    assert service.asked == [("POST", READ)]


def test_one_get_is_a_read_of_one_key():
    service = Service()
    assert run(service, lambda topic: topic.get("k1")).value == {"k": "k1"}
    assert run(service, lambda topic: topic.get("none")) is None
    assert service.asked == [("GET", "/v1/topics/t/keys/k1"), ("GET", "/v1/topics/t/keys/none")]


def test_a_get_with_conditions_is_sent_alone():
    service = Service()
    got = run(
        service,
        lambda topic: all_of(topic.get("k1"), topic.get("k2"), topic.get("k3", min_position=Position(2, 1))),
    )
    assert [each.value["k"] for each in got] == ["k1", "k2", "k3"]
    assert sorted(service.asked) == [("GET", "/v1/topics/t/keys/k3"), ("POST", READ)]


def test_what_other_terms_ask_for_is_another_request():
    service = Service()
    run(service, lambda topic: all_of(topic.get("k1"), topic.get("k2"), *_with_fields(topic)))
    assert sorted(service.parts) == [["k1", "k2"], ["k3", "k4"]]


def _with_fields(topic: Any) -> list[Any]:
    other = topic.reading(fields=["a"])
    return [other.get("k3"), other.get("k4")]


def test_more_keys_than_a_request_takes_are_several():
    service = Service()
    run(service, lambda topic: all_of(*(topic.get(f"k{n}") for n in range(MOST_PARTS + 3))))
    assert [len(each) for each in service.parts] == [MOST_PARTS, 3]


def test_while_two_requests_are_under_way_the_next_one_grows():
    service = Service()

    async def work(topic: Any) -> None:
        service.gate = asyncio.Event()
        tasks = []
        for n in range(0, 20, 2):
            tasks += [
                asyncio.ensure_future(topic.get(f"k{n}")),
                asyncio.ensure_future(topic.get(f"k{n + 1}")),
            ]
            for _ in range(5):
                await asyncio.sleep(0)
        service.gate.set()
        await asyncio.gather(*tasks)

    run(service, work)
    assert [len(each) for each in service.parts] == [2, 2, 16]


def test_where_a_read_of_several_fails_each_is_read_alone_and_has_its_own_error():
    service = Service(k2=[problem(410, "history-too-short")])
    service.answers["keys:read"] = [problem(503, "lane-building")]
    one, two, none = run(service, lambda topic: all_of(topic.get("k1"), topic.get("k2"), topic.get("none")))
    assert one.value == {"k": "k1"}
    assert isinstance(two, ProblemError)
    assert none is None
    assert service.asked[0] == ("POST", READ)
    assert len(service.asked) == 4, "a shared read that fails is not repeated"


def test_writes_of_one_tick_are_one_push_in_their_order():
    service = Service()
    calls = lambda topic: all_of(topic.put("k1", "a"), topic.delete("k2"), topic.put("k1", {"b": 1}))  # noqa: E731
    assert run(service, calls) == [
        Written("t", key, Position(2, n)) for n, key in enumerate(("k1", "k2", "k1"))
    ]
    assert service.parts == [["k1", "k2", "k1"]]
    assert service.asked == [("POST", PUSH)]


def test_a_record_that_was_refused_is_written_alone_and_fails_as_a_write_of_its_own():
    service = Service(refused=[problem(422, "unacceptable-value")])
    one, refused = run(service, lambda topic: all_of(topic.put("k1", "a"), topic.put("refused", "b")))
    assert one == Written("t", "k1", Position(2, 0))
    assert isinstance(refused, RequestRefused)
    assert service.asked == [("POST", PUSH), ("PUT", "/v1/topics/t/keys/refused")]


@pytest.mark.parametrize(("key", "is_uncertain"), [("uncertain", True), ("superseded", False)])
def test_a_record_that_may_be_there_or_was_overtaken_is_not_written_again(key: str, is_uncertain: bool):
    service = Service()
    _, failed = run(service, lambda topic: all_of(topic.put("k1", "a"), topic.put(key, "b")))
    assert isinstance(failed, Unavailable)
    assert failed.is_uncertain is is_uncertain
    assert service.asked == [("POST", PUSH)]


@pytest.mark.parametrize(
    "answer",
    [
        problem(504, "timeout"),
        problem(500, "internal"),
        problem(503, "x", uncertain=True),
        httpx.ReadError("x"),
    ],
)
def test_a_push_that_may_have_been_written_is_the_error_of_all(answer: Any):
    service = Service(t=[answer])
    failed = run(service, lambda topic: all_of(topic.put("k1", "a"), topic.put("k2", "b")))
    assert all(isinstance(each, ProblemError | Unreachable) for each in failed)
    assert service.asked == [("POST", PUSH)]


@pytest.mark.parametrize("status", [413, 429, 503])
def test_a_push_that_was_refused_as_a_whole_is_written_one_by_one(status: int):
    service = Service(t=[problem(status, "x")])
    got = run(service, lambda topic: all_of(topic.put("k1", "a"), topic.put("k2", "b")))
    assert [each.position for each in got] == [Position(2, 9)] * 2
    assert [method for method, _ in service.asked] == ["POST", "PUT", "PUT"]


def test_a_write_with_an_idempotency_key_is_sent_alone():
    service = Service()
    run(service, lambda topic: all_of(topic.put("k1", "a", idempotency_key="x"), topic.put("k2", "b")))
    assert sorted(method for method, _ in service.asked) == ["PUT", "PUT"]


@pytest.mark.parametrize("key", ["", 7.5])
def test_what_is_no_key_is_refused_before_it_is_sent(key: Any):
    service = Service()
    good, bad = run(service, lambda topic: all_of(topic.get("k1"), topic.get(key)))
    assert good.value == {"k": "k1"}
    assert isinstance(bad, ValueError | TypeError)


def test_the_end_of_the_caller_that_asks_is_not_that_of_the_others():
    service = Service()

    async def work(topic: Any) -> list[Any]:
        service.gate = asyncio.Event()
        tasks = [asyncio.ensure_future(topic.get(f"k{n}")) for n in range(3)]
        for _ in range(5):
            await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        service.gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, *others = run(service, work)
    assert isinstance(first, asyncio.CancelledError) or first.value == {"k": "k0"}
    assert [each.value["k"] for each in others] == ["k1", "k2"]


def test_writes_whose_sender_was_cancelled_meanwhile_are_uncertain_and_not_sent_again():
    service = Service()

    async def work(topic: Any) -> list[Any]:
        service.gate = asyncio.Event()
        tasks = [asyncio.ensure_future(topic.put(f"k{n}", "a")) for n in range(3)]
        for _ in range(20):
            await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        service.gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, *others = run(service, work)
    assert isinstance(first, asyncio.CancelledError)
    assert all(isinstance(each, Unreachable) for each in others)
    assert service.asked in ([], [("POST", PUSH)]), "no record is written a second time"


async def test_a_session_reads_its_own_writes_in_one_request_too():
    service = Service()

    async with service.async_client() as client:
        topic = client.session().batching().topic("t")
        await asyncio.gather(topic.put("k1", "a"), topic.put("k2", "b"))
        await asyncio.gather(topic.get("k1"), topic.get("k2"))
    assert service.asked == [("POST", PUSH), ("POST", READ)]


def test_threads_that_ask_within_a_millisecond_ask_together():
    service = Service()
    with service.client() as client, ThreadPoolExecutor(16) as pool:
        topic, ready = client.batching().topic("t"), threading.Barrier(16)

        def ask(number: int) -> Any:
            ready.wait()
            return topic.get(f"k{number}")

        for _ in range(5):
            got = list(pool.map(ask, range(16)))
            assert [each.value["k"] for each in got] == [f"k{n}" for n in range(16)]
    # A thread may miss the millisecond, and then asks with others, or alone.
    assert len(service.asked) < 16 * 5


def test_a_thread_alone_reads_one_key_and_gets_its_error():
    service = Service(k1=[problem(403, "forbidden")])
    with service.client() as client:
        topic = client.batching().topic("t")
        with pytest.raises(ProblemError):
            topic.get("k1")
        with pytest.raises(KeyAbsent):
            topic["none"]
        assert topic.put("k1", "a") == Written("t", "k1", Position(2, 9))
