"""Back-pressure: what is over a bound is refused at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from keylane_server import admission as admission_module
from keylane_server import bodies
from keylane_server.admission import AddressBusy, AdmissionControl, Limits, Overloaded, ReadPlace, WaitRefused
from keylane_server.bodies import Body, BodyBroken, BodyTimeout, BodyTooLarge

LIMITS = Limits(running=1, waiting=1, wait_s=20, long_polls=1, body_bytes=10, bodies_bytes=15)


async def test_a_request_waits_for_its_turn_and_the_next_is_refused():
    admission = AdmissionControl(LIMITS).reads
    await admission.enter()
    waits = asyncio.ensure_future(admission.enter())
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="1 requests run and 1 wait"):
        await admission.enter()
    admission.leave()
    await waits
    admission.leave()
    assert (admission.running, admission.waiting) == (0, 0)


async def test_a_request_that_waits_too_long_is_refused():
    admission = AdmissionControl(Limits(running=1, waiting=1, wait_s=0.01)).reads
    await admission.enter()
    with pytest.raises(Overloaded, match="too long"):
        await admission.enter()
    admission.leave()
    assert (admission.running, admission.waiting) == (0, 0)


def test_writes_have_places_of_their_own():
    admission = AdmissionControl(Limits(running=1, writing=2))
    assert [admission.writes.enter_at_once() for _ in range(3)] == [True, True, False]
    assert [admission.reads.enter_at_once() for _ in range(2)] == [True, False]


def test_bodies_of_writes_leave_room_for_those_of_reads():
    admission = AdmissionControl(Limits(body_bytes=10, bodies_bytes=20))
    first, second, read = Body(admission, is_write=True), Body(admission, is_write=True), Body(admission)
    asyncio.run(first.read(arriving(part(b"x" * 10, more=False)), 10))
    with pytest.raises(Overloaded):
        asyncio.run(second.read(arriving(part(b"x" * 6, more=False)), 6))
    asyncio.run(read.read(arriving(part(b"x" * 10, more=False)), 10))
    assert admission.held_bytes == 20


def test_requests_that_wait_for_a_change_have_a_bound_of_their_own():
    admission = AdmissionControl(LIMITS)
    admission.enter_long_poll()
    with pytest.raises(Overloaded):
        admission.enter_long_poll()
    admission.leave_long_poll()
    admission.enter_long_poll()


def arriving(*messages):
    left = iter(messages)

    async def receive():
        return next(left)

    return receive


def part(data, *, more):
    return {"type": "http.request", "body": data, "more_body": more}


def test_a_body_arrives_in_parts_and_its_bytes_are_counted_until_it_is_released():
    admission = AdmissionControl(LIMITS)
    body = Body(admission)
    asyncio.run(body.read(arriving(part(b"abc", more=True), part(b"def", more=False)), None))
    assert (body.data, admission.held_bytes) == (b"abcdef", 6)
    body.release()
    assert admission.held_bytes == 0


async def never():
    await asyncio.Event().wait()


async def test_a_body_whose_next_part_does_not_come_in_time_is_refused(monkeypatch):
    monkeypatch.setattr(admission_module, "LOOK_S", 0.001)
    monkeypatch.setattr(bodies, "PART_TIMEOUT_S", 0.001)
    parts = iter([part(b"abc", more=True)])

    async def receive():
        return next(parts, None) or await never()

    body = Body(AdmissionControl(LIMITS))
    with pytest.raises(BodyTimeout):
        await body.read(receive, None)
    # The task goes on: it has a refusal to send.
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.parametrize(
    ("limit", "value"), [("LEAST_BYTES_PER_S", 3_000), ("BODY_TIMEOUT_S", 0.0), ("PART_TIMEOUT_S", 0.0)]
)
async def test_a_body_that_arrives_too_slowly_is_refused_though_parts_come(monkeypatch, limit, value):
    clock = iter(range(1_000))
    monkeypatch.setattr(bodies, "PART_TIMEOUT_S", 2.0)
    monkeypatch.setattr(bodies, "BODY_TIMEOUT_S", 1_000.0)
    monkeypatch.setattr(bodies, "LEAST_BYTES_PER_S", 1)
    monkeypatch.setattr(bodies, limit, value)
    monkeypatch.setattr(bodies, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    body = Body(AdmissionControl(Limits(body_bytes=100)))

    with pytest.raises(BodyTimeout):
        await body.read(arriving(*[part(b"x", more=True)] * 90), None)
    body.release()


def test_a_body_of_the_least_rate_is_read(monkeypatch):
    clock = iter(range(1_000))
    monkeypatch.setattr(bodies, "LEAST_BYTES_PER_S", 1)
    monkeypatch.setattr(bodies, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    body = Body(AdmissionControl(Limits(body_bytes=100)))
    parts = [part(b"xxx", more=True)] * 30
    asyncio.run(body.read(arriving(*parts, part(b"", more=False)), None))
    assert body.data == b"x" * 90


def test_bytes_are_counted_when_they_are_there(monkeypatch):
    admission = AdmissionControl(LIMITS)
    held = []

    async def receive():
        held.append(admission.held_bytes)
        return part(b"xx", more=len(held) < 3)

    body = Body(admission)
    asyncio.run(body.read(receive, 10))
    assert held == [0, 2, 4]
    body.release()


def test_requests_of_an_address_have_a_bound():
    admission = AdmissionControl(Limits(of_address=1))
    admission.begin("a")
    admission.begin("b")
    with pytest.raises(AddressBusy, match="1 requests of a "):
        admission.begin("a")
    admission.end("a")
    admission.end("a")
    admission.begin("a")


def test_a_request_that_is_cancelled_while_its_body_arrives_is_cancelled():
    async def run():
        reading = asyncio.ensure_future(Body(AdmissionControl(LIMITS)).read(never, None))
        await asyncio.sleep(0)
        reading.cancel()
        await reading

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())


def test_a_body_in_many_small_parts_is_counted_part_by_part():
    admission = AdmissionControl(LIMITS)
    body = Body(admission)
    with pytest.raises(BodyTooLarge):
        asyncio.run(body.read(arriving(*[part(b"x", more=True)] * 11), None))
    assert admission.held_bytes == LIMITS.body_bytes
    body.release()
    assert admission.held_bytes == 0


@pytest.mark.parametrize("declared_bytes", [11, None])
def test_a_body_over_the_limit_is_refused(declared_bytes):
    body = Body(AdmissionControl(LIMITS))
    with pytest.raises(BodyTooLarge):
        asyncio.run(body.read(arriving(part(b"x" * 11, more=False)), declared_bytes))
    body.release()


def test_the_bodies_of_all_requests_have_a_bound():
    admission = AdmissionControl(LIMITS)
    first, second = Body(admission), Body(admission)
    asyncio.run(first.read(arriving(part(b"x" * 10, more=False)), 10))
    with pytest.raises(Overloaded):
        asyncio.run(second.read(arriving(part(b"x" * 10, more=False)), 10))
    first.release()
    second.release()
    assert admission.held_bytes == 0


def test_a_body_that_ends_too_early_is_noticed():
    body = Body(AdmissionControl(LIMITS))
    with pytest.raises(BodyBroken):
        asyncio.run(body.read(arriving(part(b"x", more=True), {"type": "http.disconnect"}), None))


async def test_a_read_that_waits_gives_its_place_to_others():
    admission = AdmissionControl(LIMITS)
    places = [ReadPlace(admission), ReadPlace(admission)]
    assert admission.reads.enter_at_once()
    assert places[0].give(0.01) == places[0].give(0.01) == 0.01
    assert (admission.reads.running, admission.waiting) == (0, 1)
    assert admission.reads.enter_at_once()
    with pytest.raises(WaitRefused, match="1 reads wait"):
        places[1].give(0.01)
    for place in places:
        place.leave()
    assert (admission.reads.running, admission.waiting) == (0, 0)


@pytest.mark.parametrize(
    ("pause_s", "waiting", "expected"),
    [(0.01, 1, 0.01), (0.01, 100, 0.01), (0.01, 600, 0.25), (0.1, 2_000, 0.5), (2, 200, 2)],
)
def test_many_that_wait_look_less_often_and_not_at_the_same_time(
    pause_s: float, waiting: int, expected: float
):
    pauses = {admission_module.shared_pause_s(pause_s, waiting) for _ in range(100)}
    assert all(abs(each - expected) <= expected * admission_module.SPREAD for each in pauses)
    assert len(pauses) == (1 if waiting <= admission_module.OFTEN else 100)
