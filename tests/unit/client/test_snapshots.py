from __future__ import annotations

import pickle

import httpx
import pytest
from tests.unit.client.api_double import ApiDouble, problem
from tests.unit.client.snapshot_answers import (
    BEGAN_AT,
    ENDED_AT,
    a_row,
    begun,
    ended,
    failed,
    lane,
    lines,
    removed,
)

from keylane_client import (
    AccessDenied,
    AsyncClient,
    InvalidAnswer,
    InvalidArgument,
    Position,
    ServiceFailed,
    SnapshotOutdated,
    TopicVector,
    Unavailable,
    between,
)
from keylane_client import snapshots as reading

PATH = "/topics/t/snapshot"


def values_of(records) -> dict[object, object]:
    return {record.key: record.value for record in records}


def test_a_snapshot_has_the_last_row_of_each_key_and_ends_with_its_vector():
    rows = [a_row("a", 1), a_row("b", 2), a_row("a", 3, 9), removed("b")]
    api = ApiDouble(lines(begun(), *rows, lane(0), a_row("c", 4), lane(1), ended()))
    snapshot = api.topic().snapshot()
    assert (snapshot.at, snapshot.is_over) == (None, False)
    assert values_of(snapshot) == {"a": 3, "c": 4}
    assert snapshot.at == TopicVector({0: 5, 1: 6}, 7)
    assert (str(snapshot.at), snapshot.lanes, snapshot.lanes_read, snapshot.is_over) == (ENDED_AT, 2, 2, True)
    assert Position(1, 5) in snapshot.at
    assert Position(1, 6) not in snapshot.at
    assert api.paths == [PATH]


def test_prefix_conditions_fields_and_keys_of_any_bytes_are_those_of_other_reads():
    api = ApiDouble(lines(begun(), ended()), lines(begun(), ended()))
    topic = api.topic().reading(fields=["x"], partial=True)
    list(topic.snapshot(prefix="p|", where={"amount": between(1, 2), "prefix": "a"}))
    list(topic.snapshot(prefix=b"\xff"))
    first, second = (dict(each.url.params) for each in api.requests)
    asked = {".amount": "1..2", ".prefix": "a", "prefix": "p|"}
    assert first == {**asked, "fields": "x", "partial": "true"}
    assert second == {"prefix": "_w==", "key_format": "base64", "fields": "x", "partial": "true"}
    with pytest.raises(InvalidArgument, match="at"):
        topic.at(1).snapshot()
    with pytest.raises(InvalidArgument, match="max_age"):
        topic.reading(event=True).snapshot()


@pytest.mark.parametrize(
    "broken",
    [
        lines(begun(), a_row("a", 1), lane(0), a_row("old", 2), cut='{"key": "hal'),
        lines(begun(), a_row("a", 1), lane(0), a_row("old", 2), failed(503, "state-unavailable")),
        lines(begun(), a_row("a", 1), lane(0), a_row("old", 2), failed(429, "rate-limited")),
        lines(begun(), a_row("a", 1), lane(0), a_row("old", 2), failed(401, "unauthorized")),
    ],
    ids=["cut", "problem", "limit", "expired"],
)
def test_a_snapshot_that_breaks_goes_on_behind_its_last_lane_and_is_of_where_it_began(broken):
    api = ApiDouble(
        broken,
        httpx.ReadError("gone"),
        lines(begun(at="0:8,1:9@7"), a_row("b", 3), lane(1), ended(None)),
    )
    snapshot = api.topic().snapshot()
    assert values_of(snapshot) == {"a": 1, "b": 3}
    assert str(snapshot.at) == BEGAN_AT
    assert api.paths == [PATH, f"{PATH}?cursor=c0", f"{PATH}?cursor=c0"]


def test_a_snapshot_that_breaks_in_its_first_lane_begins_again():
    api = ApiDouble(
        lines(begun(at="0:1,1:1@7"), a_row("a", 1)), lines(begun(), a_row("a", 2), lane(0), ended())
    )
    snapshot = api.topic().snapshot()
    assert values_of(snapshot) == {"a": 2}
    assert str(snapshot.at) == ENDED_AT


def test_a_lane_that_breaks_again_and_again_raises_its_error():
    api = ApiDouble(*(lines(begun(), a_row("a", 1)) for _ in range(3)))
    with pytest.raises(reading.Unreachable, match="cut off"):
        list(api.topic().snapshot())
    assert len(api.requests) == 3


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lines(begun(), failed(500, "corrupt-state")), ServiceFailed),
        (lines(begun(), {"lane": {}}), InvalidAnswer),
        (lines({"begin": {}}), InvalidAnswer),
        (httpx.Response(200, json={}), InvalidAnswer),
        (problem(501, "not-streamed"), ServiceFailed),
    ],
)
def test_what_does_not_pass_is_raised_at_once(answer, error):
    api = ApiDouble(answer)
    with pytest.raises(error):
        list(api.topic().snapshot())


def test_a_token_that_has_expired_meanwhile_and_is_not_renewed_ends_a_snapshot():
    expired = lines(begun(), a_row("a", 1), lane(0), failed(401, "unauthorized"))
    api = ApiDouble(expired, problem(401, "unauthorized"))
    with pytest.raises(AccessDenied):
        list(api.topic().snapshot())
    assert len(api.requests) == 2


def test_a_topic_that_is_built_again_is_begun_again_until_records_have_been_given():
    outdated = failed(409, "snapshot-outdated")
    api = ApiDouble(
        lines(begun(), a_row("a", 1), outdated),
        problem(409, "snapshot-outdated"),
        lines(begun(1), a_row("a", 2), lane(0), ended()),
    )
    assert values_of(api.topic().snapshot()) == {"a": 2}
    assert api.paths == [PATH] * 3
    api = ApiDouble(lines(begun(), a_row("a", 1), lane(0), outdated))
    records = iter(api.topic().snapshot())
    assert next(records).value == 1
    with pytest.raises(SnapshotOutdated):
        next(records)
    api = ApiDouble(*(lines(begun(), outdated) for _ in range(reading.BEGINNINGS)))
    with pytest.raises(SnapshotOutdated):
        list(api.topic().snapshot())


def test_rows_that_have_expired_when_their_lane_was_read_are_left_out():
    rows = [
        a_row("old", 1, timestamp=9_000),
        a_row("new", 2, timestamp=9_001),
        a_row("none", 3, timestamp=None),
    ]
    api = ApiDouble(lines(begun(ttl_ms=1_000), *rows, lane(0, as_of_ms=10_000), ended()))
    assert values_of(api.topic().snapshot()) == {"new": 2, "none": 3}


def test_a_line_has_a_bound(monkeypatch):
    monkeypatch.setattr(reading, "MOST_LINE_BYTES", 1000)
    api = ApiDouble(lines(begun(), cut="x" * 2000))
    with pytest.raises(InvalidAnswer, match="1000 bytes"):
        list(api.topic().snapshot())


def test_lines_are_the_same_however_they_come():
    whole = b'{"a": 1}\n\n{"b": 2}\nrest'
    for size in range(1, len(whole) + 1):
        parser, found = reading.LineParser(), []
        for at in range(0, len(whole), size):
            parser.feed(whole[at : at + size])
            found += parser
        assert found == [b'{"a": 1}', b"", b'{"b": 2}'], size


def test_an_asynchronous_snapshot_is_read_in_the_same_way():
    async def read(client: AsyncClient) -> object:
        snapshot = client.topic("t").snapshot()
        return [record.value async for record in snapshot], str(snapshot.at)

    answers = lines(begun(), a_row("a", 1), lane(0)), lines(begun(), a_row("b", 2), lane(1), ended(None))
    assert ApiDouble(*answers).run(read) == ([1, 2], BEGAN_AT)


def test_an_error_that_asks_for_a_pause_is_one_that_passes():
    api = ApiDouble(problem(503, "overloaded", Retry_After="0"), lines(begun(), lane(0), ended()))
    assert list(api.topic().snapshot()) == []
    api = ApiDouble(problem(503, "overloaded", Retry_After="100"))
    with pytest.raises(Unavailable):
        list(api.topic().snapshot())


def test_a_snapshot_is_read_in_parts_which_can_be_pickled():
    api = ApiDouble(
        lines(begun(3, cursor="c"), a_row("unread", 0)),
        *(lines(begun(3), a_row(key, 1), lane(number), ended(None)) for key, number in (("a", 0), ("b", 1))),
        lines(begun(3, at="0:8,1:9@7"), a_row("c", 2), cut="{"),
        lines(begun(3, at="0:8,1:9@7"), a_row("c", 2), lane(2), ended(None)),
    )
    topic = api.topic().reading(fields=["x"])
    parts = list(topic.snapshot(prefix="p").parts(3))
    assert [(each.first_lane, each.last_lane) for each in parts] == [(0, 0), (1, 1), (2, 2)]
    found = [topic.snapshot(prefix="p").part(pickle.loads(pickle.dumps(each))) for each in parts]  # noqa: S301
    assert [values_of(each) for each in found] == [{"a": 1}, {"b": 1}, {"c": 2}]
    assert [(str(each.at), each.lanes, each.next_offset) for each in found] == [(BEGAN_AT, 1, 5)] * 3
    assert api.paths == [
        f"{PATH}?fields=x&prefix=p",
        *(f"{PATH}?fields=x&prefix=p&cursor=c&lanes={number}-{number}" for number in (0, 1, 2, 2)),
    ]


@pytest.mark.parametrize(
    ("lanes", "most", "ranges"), [(5, 2, [(0, 1), (2, 4)]), (2, 9, [(0, 0), (1, 1)]), (0, 4, [])]
)
def test_lanes_are_divided_among_parts(lanes: int, most: int, ranges: list[tuple[int, int]]):
    api = ApiDouble(httpx.ReadError("gone"), lines(begun(lanes, cursor="c")))
    found = api.topic().snapshot().parts(most)
    assert [(each.first_lane, each.last_lane) for each in found] == ranges


def test_a_part_of_a_topic_that_was_built_again_is_not_begun_again():
    api = ApiDouble(lines(begun(cursor="c")), problem(409, "snapshot-outdated"))
    [part] = api.topic().snapshot().parts(1)
    with pytest.raises(SnapshotOutdated):
        list(api.topic().snapshot().part(part))
    assert len(api.requests) == 2


def test_a_lane_behind_where_the_snapshot_began_takes_the_position_back():
    api = ApiDouble(
        lines(begun(at="0:9,1:4@7"), a_row("a", 1), lane(0), lane(1)), lines(begun(), ended(None))
    )
    snapshot = api.topic().snapshot()
    assert values_of(snapshot) == {"a": 1}
    assert str(snapshot.at) == "0:5,1:4@7"
