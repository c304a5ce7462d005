"""The Python client on the whole stack, and on its fake, beyond the cases of client_cases.json."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial

import pytest
from tests.support.client_cases import FAKE_FIELDS, FAKE_TOPICS, asynchronous

from keylane_client import (
    AsyncClient,
    Client,
    NewRecord,
    NotKept,
    RequestRefused,
    ValueMismatch,
    all_of,
    between,
    starting_with,
)
from keylane_client.testing import FakeKeylane
from keylane_local.tools import project_root

README = project_root() / "clients" / "python" / "README.md"


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


def test_a_join_reads_a_key_of_several_topics(api, keys):
    session = api.session()
    session.topic("flights").put(keys("a"), {"n": 1})
    session.topic("flights").get(keys("a"))
    joined = api.join(keys("a"), ["flights", "joined"])
    assert joined.records["flights"].value == {"n": 1}
    assert joined.records["joined"] is None


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
