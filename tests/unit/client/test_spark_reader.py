"""What a task of Spark reads and when a query fails, without a session of Spark."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pyspark.sql.datasource import StringStartsWith
from pyspark.sql.types import IntegerType, StructType
from tests.unit.client.api_double import ApiDouble, problem
from tests.unit.client.snapshot_answers import a_row, begun, ended, lane, lines

from keylane_client import InvalidArgument, KeylaneError
from keylane_client.spark import source
from keylane_client.spark.source import KeylaneDataSource, KeylaneReader, TopicSource

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS = {"url": "https://api.test/v1", "topic": "t"}
VALUE = StructType().add("n", IntegerType())
SCHEMA = StructType().add("key", "string").add("value", VALUE).add("next_offset", "long")
FIELDS = {
    "key_fields": [],
    "key_schema": "",
    "key_format": "text",
    "fields": [["a.b", "number"], ["c", "text"]],
}


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ApiDouble]:
    def answer(*answers: Any) -> ApiDouble:
        api = ApiDouble(*answers)
        monkeypatch.setattr(TopicSource, "open", lambda *_, **__: api.client())
        return api

    return answer


def layout(**options: Any) -> httpx.Response:
    about = {"topic": "t", "partitions": 2, "stripes": 1, "lag": 0, "lanes": []}
    return httpx.Response(200, json=about | {"options": FIELDS | options})


def reader_of(loaded: KeylaneDataSource | None = None) -> KeylaneReader:
    return (loaded or KeylaneDataSource(OPTIONS)).reader(SCHEMA)


def rows_of(reader: KeylaneReader, partition: Any) -> list[dict[str, Any]]:
    again, part = pickle.loads(pickle.dumps((reader, partition)))  # noqa: S301 (as Spark does)
    return [row for batch in again.read(part) for row in batch.to_pylist()]


def test_rows_have_the_offset_of_their_lane(
    answering: Callable[..., ApiDouble], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(source, "BATCH_ROWS", 2)
    other = lane(1)
    other["lane"]["next_offset"] = 9
    rows = [a_row(key, {"n": number}) for number, key in enumerate("abcde")]
    api = answering(
        lines(begun(cursor="c")), lines(begun(), *rows[:3], lane(0), *rows[3:], other, ended(None))
    )
    reader = reader_of(KeylaneDataSource(OPTIONS | {"tasks": "1"}))
    [part] = reader.partitions()
    found = rows_of(reader, part)
    assert [(row["key"], row["value"]["n"], row["next_offset"]) for row in found] == [
        ("a", 0, 5),
        ("b", 1, 5),
        ("c", 2, 5),
        ("d", 3, 9),
        ("e", 4, 9),
    ]
    assert dict(api.requests[1].url.params) == {"fields": "n", "cursor": "c", "lanes": "0-1"}


def test_a_table_says_where_it_is_and_has_the_declared_fields(answering: Callable[..., ApiDouble]):
    answering(lines(begun(cursor="c")), layout())
    assert KeylaneDataSource(OPTIONS).schema() == (
        "key STRING COMMENT 'as of 0:3,1:4@7 of t', value STRUCT<`a`: STRUCT<`b`: DOUBLE>, `c`: STRING>,"
        " partition INT, offset BIGINT, timestamp TIMESTAMP"
    )


def test_whoever_may_not_see_the_fields_asks_for_none(answering: Callable[..., ApiDouble]):
    answering(lines(begun(cursor="c")), problem(403, "outside-scope"))
    assert " value STRING," in KeylaneDataSource(OPTIONS).schema()
    api = answering(problem(403, "outside-scope"), lines(begun(cursor="c")))
    reader, asked = reader_of(), [StringStartsWith(("key",), "a")]
    assert reader.pushFilters(asked) == asked
    reader.partitions()
    assert dict(api.requests[1].url.params) == {}


def test_typed_keys_are_not_asked_for(answering: Callable[..., ApiDouble]):
    api = answering(layout(key_fields=[["id", "integer"]]), lines(begun(cursor="c")))
    reader = reader_of()
    reader.pushFilters([StringStartsWith(("key",), "a")])
    reader.partitions()
    assert dict(api.requests[1].url.params) == {}


def test_a_query_fails_if_a_lane_is_behind_where_the_table_was_loaded(answering: Callable[..., ApiDouble]):
    answering(
        *(lines(begun(at="0:6,1:4@7", cursor="c")), layout()),
        lines(begun(at="0:2,1:4@7", cursor="c")),
        lines(begun(), a_row("a", {"n": 1}), lane(0), ended(None)),
    )
    loaded = KeylaneDataSource(OPTIONS)
    loaded.schema()
    reader = reader_of(loaded)
    with pytest.raises(KeylaneError, match="went back to 0:5,1:4@7"):
        rows_of(reader, reader.partitions()[0])


def test_a_query_of_a_topic_that_was_created_again_fails(answering: Callable[..., ApiDouble]):
    answering(lines(begun(cursor="c")), layout(), lines(begun(at="0:3,1:4@8", cursor="c")))
    loaded = KeylaneDataSource(OPTIONS)
    loaded.schema()
    with pytest.raises(InvalidArgument, match="created again: load the table again"):
        reader_of(loaded).partitions()


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"lanes": "3"}, "there is no option 'lanes'"),
        ({"tasks": "0"}, "tasks is a number"),
        ({"tasks": "x"}, "tasks is a number"),
        ({"topic": ""}, "url and topic"),
        ({"url": ""}, "url and topic"),
        ({"url": "localhost"}, "is not the URL"),
    ],
)
def test_options_that_no_table_has_are_refused(options: dict[str, str], fault: str):
    with pytest.raises(InvalidArgument, match=fault):
        KeylaneDataSource(OPTIONS | options).schema()
