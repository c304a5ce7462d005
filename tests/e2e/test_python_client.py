"""The Python client on the whole stack, and on its fake: every method once, blocking and asynchronous."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial

import pytest

from keylane_client import (
    Absent,
    AsyncClient,
    Client,
    KeyAbsent,
    NewRecord,
    NotKept,
    Position,
    PositionNotReached,
    PreconditionFailed,
    RequestRefused,
    Unavailable,
    UnknownTopic,
    UnknownView,
    ValueMismatch,
    WriteFailed,
    Written,
    all_of,
    between,
    starting_with,
)
from keylane_client.testing import FakeKeylane
from keylane_local.tools import project_root

READS_WAIT_S = 20
README = project_root() / "clients" / "python" / "README.md"


class BlockedAsync:
    """An asynchronous client, its session, topic or view, used as the blocking one is."""

    def __init__(self, runner: asyncio.Runner, target: object) -> None:
        self._runner = runner
        self._target = target

    def __getattr__(self, name: str):
        found = getattr(self._target, name)
        return self._call(found) if callable(found) else found

    def __getitem__(self, key):
        return self._settle(self._target[key])

    def __iter__(self):
        return self._items(aiter(self._target))

    def _call(self, method):
        return lambda *args, **kwargs: self._settle(method(*args, **kwargs))

    def _settle(self, result):
        if inspect.isasyncgen(result):
            return self._items(result)
        if inspect.isawaitable(result):
            return self._runner.run(self._awaited(result))
        return BlockedAsync(self._runner, result) if type(result).__name__.startswith("Async") else result

    def _items(self, items):
        try:
            while True:
                yield self._runner.run(self._awaited(anext(items)))
        except StopAsyncIteration:
            return

    @staticmethod
    async def _awaited(awaitable):
        return await awaitable


@contextmanager
def asynchronous(client: AsyncClient):
    with asyncio.Runner() as runner:
        yield BlockedAsync(runner, client)
        runner.run(client.aclose())


FAKE_TOPICS = {"flights": 9, "bookings": 3, "joined": 9, "limited": 1}
FAKE_FIELDS = {
    "bookings": {
        "to": "text",
        "fare": "number",
        "leaves": "time",
        "paid": "boolean",
        "stops": "texts",
        "rider.country": "text",
    }
}


@dataclass(frozen=True)
class Keys:
    """Keys that no other test uses."""

    prefix: str

    def __call__(self, name: str) -> str:
        return f"{self.prefix}|{name}"


@pytest.fixture(params=["blocking", "asynchronous"])
def stack_api(request, applied_stack):
    """A client of either kind, of the whole stack."""
    url = applied_stack.http_url
    with Client(url) if request.param == "blocking" else asynchronous(AsyncClient(url)) as client:
        yield client


@pytest.fixture(params=["blocking", "asynchronous", "fake blocking", "fake asynchronous"])
def api(request):
    """A client of either kind, of the stack or of the fake that users have for their tests."""
    where, _, kind = request.param.rpartition(" ")
    if where:
        fake = FakeKeylane(FAKE_TOPICS, fields=FAKE_FIELDS)
        clients = fake.client, fake.async_client
    else:
        url = request.getfixturevalue("applied_stack").http_url
        clients = partial(Client, url), partial(AsyncClient, url)
    with clients[0]() if kind == "blocking" else asynchronous(clients[1]()) as client:
        yield client


@pytest.fixture
def keys(request) -> Keys:
    return Keys(f"client-{uuid.uuid4().hex[:12]}-{request.node.originalname}"[:60])


def test_a_written_key_is_read_at_its_position_and_then_deleted(api, keys):
    topic = api.topic("flights")
    position = topic.put(keys("a/b"), {"dest": "SFO"}).position
    record = topic.get(keys("a/b"), min_position=position, wait_s=READS_WAIT_S)
    assert (record.value, record.position, record.key) == ({"dest": "SFO"}, position, keys("a/b"))
    assert record.watermark.offset > position.offset
    assert record.age is not None
    assert topic[keys("a/b")].value == {"dest": "SFO"}
    gone = topic.delete(keys("a/b")).position
    assert topic.get(keys("a/b"), min_position=gone, wait_s=READS_WAIT_S) is None


@pytest.mark.parametrize("name", ["..", "%2F", "ключ", "a b+c?#&="])
def test_an_odd_key_and_odd_bytes_come_back(api, keys, name):
    topic = api.session().topic("flights")
    # "..": as a whole key, which nothing else may resolve.
    key = name if name == ".." else keys(name)
    topic.put(key, b"\x00\xff")
    assert topic[key].value == b"\x00\xff"
    assert topic[key].value_format == "base64"


def test_a_missing_key_is_another_error_than_a_missing_topic_or_view(api, keys):
    with pytest.raises(KeyAbsent) as absent:
        api.topic("flights")[keys("never")]
    assert (absent.value.status, absent.value.type) == (404, "key-absent")
    assert absent.value.instance
    with pytest.raises(UnknownTopic):
        api.topic("nowhere").get("a")
    with pytest.raises(UnknownTopic):
        api.topic("nowhere").put("a", 1)
    with pytest.raises(UnknownView):
        api.view("never").describe()


def test_if_match_refuses_another_record_and_a_known_one_is_not_sent_again(api, keys):
    topic = api.session().topic("flights")
    topic.put(keys("a"), 1)
    record = topic[keys("a")]
    assert topic.get(keys("a"), if_match=record).value == 1
    with pytest.raises(PreconditionFailed):
        topic.get(keys("a"), if_match=Position(record.position.partition, record.position.offset + 1))
    again = topic.get(keys("a"), known=record)
    assert again.position == record.position
    assert again.raw is record.raw


def test_a_position_that_does_not_arrive_is_said_to(api, keys):
    position = api.topic("flights").put(keys("a"), 1).position
    later = Position(position.partition, position.offset + 1_000_000)
    with pytest.raises(PositionNotReached):
        api.topic("flights").get(keys("a"), min_position=later, wait_s=0.2)


def test_a_session_reads_its_own_writes_in_ranges_and_many_keys(api, keys):
    topic = api.session().topic("bookings")
    names = [keys(f"{number:02}") for number in range(25)]
    results = topic.push([NewRecord(name, {"n": name, "m": 1}) for name in names])
    assert all(isinstance(each, Written) for each in results)
    assert [record.key for record in topic.scan(prefix=keys(""), page_size=4)] == names
    assert list(topic.keys(start=names[3], stop=names[6], page_size=2)) == names[3:6]
    assert topic.count() >= len(names)
    topic.delete(names[0])
    found = topic.get_many([*names[:3], keys("never")])
    assert [record and record.value["n"] for record in found.values()] == [None, *names[1:3], None]
    picked = topic.reading(fields=["m"]).scan(prefix=keys(""), page_size=20)
    assert {str(record.value) for record in picked} == {"{'m': 1}"}


@pytest.fixture
def rides(api, keys):
    """Rides to a country of their own, which no other test has, by a session: its finds have them."""
    topic, country = api.session().topic("bookings"), uuid.uuid4().hex
    records = [
        {
            "to": "Zug" if number % 2 else "Chur",
            "fare": 12.5 + number,
            "leaves": f"2026-11-0{number + 1}T09:00:00Z",
            "paid": number > 2,
            "stops": ["a", f"s{number}"],
            "rider": {"country": f"{country}-{number}"},
        }
        for number in range(6)
    ]
    topic.push([NewRecord(keys(str(number)), value) for number, value in enumerate(records)])
    return topic, country


def numbers(records) -> list[int]:
    return [int(record.key[-1]) for record in records]


FOUND = [
    ({"to": "Zug"}, [1, 3, 5]),
    ({"to": starting_with("Ch")}, [0, 2, 4]),
    ({"to": "Ch*"}, []),
    ({"fare": 13.5}, [1]),
    ({"fare": Decimal("13.500")}, [1]),
    ({"fare": between(13.5, 15.5)}, [1, 2, 3]),
    ({"fare": between(13.5, below=15.5)}, [1, 2]),
    ({"leaves": between(date(2026, 11, 5))}, [4, 5]),
    ({"leaves": datetime(2026, 11, 2, 9, tzinfo=UTC)}, [1]),
    ({"leaves": datetime(2026, 11, 2, 10, tzinfo=timezone(timedelta(hours=1)))}, [1]),
    ({"leaves": between(1_793_610_000_000, below=1_793_696_400_001)}, [1, 2]),
    ({"paid": True}, [3, 4, 5]),
    ({"stops": "a"}, [0, 1, 2, 3, 4, 5]),
    ({"stops": all_of("a", "s3")}, [3]),
    ({"stops": starting_with("s"), "paid": False}, [0, 1, 2]),
    ({"paid": True, "to": "Zug", "fare": between(high=16)}, [3]),
]
"""Conditions, and the rides that meet them."""


def test_rides_are_found_and_counted_by_their_fields(rides):
    topic, country = rides
    mine = topic.find({"rider.country": starting_with(country)})
    assert mine.count() == 6
    for conditions, expected in FOUND:
        query = topic.find({"rider.country": starting_with(country)}, **conditions).order_by("fare")
        assert numbers(query.page_size(2)) == expected, conditions
        assert query.count() == len(expected), conditions


def test_what_is_found_is_in_order_page_by_page_and_leaves_it_when_it_changes(rides, keys):
    topic, country = rides
    query = topic.find({"rider.country": starting_with(country)})
    assert sorted(numbers(query)) == [0, 1, 2, 3, 4, 5]
    assert numbers(query.order_by("-leaves").limit(4).page_size(3)) == [5, 4, 3, 2]
    assert numbers(query.prefix(keys("3"))) == [3]
    assert query.prefix(keys("3")).count() == 1
    page = query.order_by("-leaves").limit(4).page()
    assert numbers(page.records) == [5, 4, 3, 2]
    assert page.scanned >= 4
    assert set(page.watermarks) >= {record.position.partition for record in page.records}
    topic.delete(keys("1"))
    changed = topic.put(keys("0"), {"to": "Bern", "rider": {"country": country}}).position
    assert numbers(query.order_by("-leaves").page(page.next).records) == []
    assert topic.find(to="Bern").min_position(changed).limit(1).page().records[0].value["to"] == "Bern"
    assert sorted(numbers(query)) == [0, 2, 3, 4, 5]
    assert query.count() == 5
    picked = topic.reading(fields=["to"]).find({"rider.country": country}, to="Bern")
    assert [record.value for record in picked] == [{"to": "Bern"}]


def test_a_find_that_cannot_be_says_which_fields_there_are(api):
    with pytest.raises(RequestRefused, match=r"fare \(number\)"):
        api.topic("bookings").find(nothing=1).count()
    with pytest.raises(RequestRefused, match="number"):
        api.topic("bookings").find(fare="much").count()
    with pytest.raises(NotKept, match="no-fields"):
        api.topic("flights").find(a=1).page()


def test_what_is_found_has_values_of_the_topics_model(api, keys):
    topic = api.session().topic("bookings", model=Trip)
    topic.put(keys("a"), Trip(keys("model"), 2))
    assert [record.value for record in topic.find(to=keys("model"))] == [Trip(keys("model"), 2)]


def test_a_push_says_which_record_was_not_written(api, keys):
    ok, failed = api.topic("flights").push([NewRecord(keys("a"), 1), NewRecord("x" * 65_537, 1)])
    assert isinstance(ok, Written)
    assert isinstance(failed, WriteFailed)
    assert (failed.code, failed.is_retriable) == ("MESSAGE_TOO_LARGE", False)


def test_a_history_has_each_record_and_an_earlier_moment_its_own(api, keys):
    topic = api.session().topic("bookings")
    positions = [topic.put(keys("a"), number).position for number in range(3)]
    positions.append(topic.delete(keys("a")).position)
    entries = list(topic.history(keys("a"), page_size=1))
    assert [entry.value for entry in entries] == [None, 2, 1, 0]
    assert [entry.is_deleted for entry in entries] == [True, False, False, False]
    assert [entry.position for entry in entries] == positions[::-1]
    assert topic.at(positions[1])[keys("a")].value == 1


@pytest.fixture(params=["polls", "stream", "fake"])
def watching_api(request):
    """A client of the Lambda functions, which can't stream, one of the server, which does, and a fake's."""
    if request.param == "fake":
        with FakeKeylane(FAKE_TOPICS).client() as client:
            yield client
        return
    is_stream = request.param == "stream"
    url = (
        request.getfixturevalue("applied_stack").http_url
        if is_stream
        else request.getfixturevalue("lambda_url")
    )
    with Client(url) as client:
        yield client


def test_a_watch_sees_a_key_arrive_change_and_go(watching_api, keys):
    topic = watching_api.topic("flights")
    changes = topic.watch(keys("a"), wait_s=5)
    assert isinstance(next(changes), Absent)
    topic.put(keys("a"), 1)
    assert next(changes).value == 1
    topic.put(keys("a"), 2)
    assert next(changes).value == 2
    topic.delete(keys("a"))
    assert isinstance(next(changes), Absent)


def test_a_key_is_in_a_topic_until_it_is_deleted(api, keys):
    topic = api.session().topic("flights")
    assert topic.contains(keys("in")) is False
    topic.put(keys("in"), 1)
    assert topic.contains(keys("in")) is True
    topic.delete(keys("in"))
    assert topic.contains(keys("in")) is False
    with pytest.raises(UnknownTopic):
        api.topic("nowhere").contains("a")


@dataclass
class Trip:
    to: str
    seats: int = 1


def test_a_topic_has_values_of_its_model(api, keys):
    topic = api.session().topic("bookings", model=Trip)
    topic.put(keys("a"), Trip("Zug", 2))
    topic.push([NewRecord(keys("b"), Trip("Bern"))])
    assert topic[keys("a")].value == Trip("Zug", 2)
    assert [record.value.to for record in topic.scan(prefix=keys(""))] == ["Zug", "Bern"]
    topic.put(keys("c"), {"to": 7})
    with pytest.raises(ValueMismatch, match=r"Trip\.to is 7, not str"):
        topic.get(keys("c"))


def test_headers_are_written_and_read(api, keys):
    topic = api.session().topic("limited")
    given = {"source": "tests", "raw": b"\xff", "none": None}
    topic.put(keys("w"), {"a": 1}, headers=given)
    record = topic.reading(headers=True)[keys("w")]
    assert record.value == {"a": 1}
    assert {each.name: each.value for each in record.headers} == given


def test_headers_come_where_they_are_asked_for(api, keys):
    topic = api.session().topic("limited")
    topic.put(keys("h"), 1)
    assert topic[keys("h")].headers is None
    assert topic.reading(headers=True)[keys("h")].headers == ()


def test_a_join_reads_a_key_of_several_topics(api, keys):
    session = api.session()
    session.topic("flights").put(keys("a"), {"n": 1})
    session.topic("flights").get(keys("a"))
    joined = api.join(keys("a"), ["flights", "joined"])
    assert joined.records["flights"].value == {"n": 1}
    assert joined.records["joined"] is None


def counted(view, prefix: str) -> int:
    """What a view has of keys with a prefix; 0 while a lane of it is being built."""
    try:
        return sum(window.values["n"] for window in view.scan(prefix=prefix))
    except Unavailable:
        return 0


def test_the_windows_of_a_view_are_read(stack_api, keys):
    topic = stack_api.topic("joined")
    for _ in range(3):
        topic.put(keys("v"), {"amount": 0.5, "note": "x"})
    view = stack_api.view("puts")
    end_s = time.monotonic() + 120
    while counted(view, keys("")) < 3:
        assert time.monotonic() < end_s, "the view does not have the records"
        time.sleep(0.1)
    windows = list(view.scan(prefix=keys(""), page_size=1))
    assert {window.key for window in windows} == {keys("v")}
    assert sum(window.values["total"] for window in windows) == 1.5
    assert view.describe()["topic"] == "joined"


def test_a_layout_has_the_lanes_of_all_stripes(stack_api):
    layout = stack_api.topic("striped").layout()
    assert (layout.partitions, layout.stripes, len(layout.lanes)) == (3, 4, 12)
    assert {lane.shard for lane in layout.lanes}


def test_kafkas_topics_a_layout_and_raw_records(api, keys):
    assert {"bookings", "flights"} <= {each.topic for each in api.topics(page_size=3)}
    assert [each.topic for each in api.topics(prefix="book")] == ["bookings"]
    layout = api.topic("bookings").layout()
    assert len(layout.lanes) == layout.partitions * layout.stripes
    position = api.topic("flights").put(keys("raw"), {"n": 1}).position
    newest = list(api.topic("flights").log(position.partition, position.offset))
    assert (newest[0].key, newest[0].value, newest[0].position) == (keys("raw"), {"n": 1}, position)
    assert api.health()["parts"]["redis"]["ready"] is True


@pytest.mark.parametrize("number", [0, 1])
def test_the_readmes_examples_run_as_they_are(applied_stack, number):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    example = blocks[number].replace("http://localhost:8080", applied_stack.http_url)
    done = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, check=False, timeout=60
    )
    assert "SFO" in done.stdout, done.stderr
