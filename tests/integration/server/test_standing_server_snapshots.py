"""Snapshots of topics as lines of JSON, from `keylane serve` over real servers."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from tests.servers.standing import StandingServer, plain_variables

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.logged_topic import LoggedTopic


@pytest.fixture(scope="module")
def variables(redis_cluster: str, kafka: str) -> dict[str, str]:
    return plain_variables(redis_cluster, kafka)


@pytest.fixture
def topic(logged_topic: Callable[..., LoggedTopic]) -> LoggedTopic:
    return logged_topic()


def lines_of(server: StandingServer, path: str, **headers: str) -> list[dict[str, Any]]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    status, headers, data = server.ask("GET", path, **names)
    assert (status, headers["content-type"]) == (200, "application/x-ndjson"), data
    coding = headers.get("content-encoding")
    assert coding == names.get("Accept-Encoding")
    if coding == "gzip":
        data = gzip.decompress(data)
    if coding == "zstd":
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def rows_of(lines: list[dict[str, Any]]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for line in lines:
        if "key" in line and line.get("absent"):
            rows.pop(line["key"], None)
        elif "key" in line:
            rows[line["key"]] = line["value"]
    return rows


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_snapshot_is_all_records_lane_by_lane_and_ends_with_a_position(
    server: StandingServer, topic: LoggedTopic, coding: str
):
    for number in range(50):
        topic.put(b"k%d" % number, b'{"n": %d}' % number)
    topic.put(b"k0", None)
    topic.put(b"\xff", b"binary")
    path = f"/topics/{topic.name}/snapshot"
    lines = lines_of(server, path)
    begin, *_, end = lines
    assert begin["begin"].keys() == {"topic", "lanes", "at", "cursor"}
    lanes = [line["lane"] for line in lines if "lane" in line]
    assert len(lanes) == begin["begin"]["lanes"] == 9
    at = {str(lane["partition"]): lane["next_offset"] for lane in lanes}
    assert end["end"]["at"].startswith(",".join(f"{partition}:{offset}" for partition, offset in at.items()))
    assert rows_of(lines) == {f"k{number}": {"n": number} for number in range(1, 50)} | {"/w==": "binary"}
    [row] = [line for line in lines if line.get("key") == "k7"]
    page = json.loads(server.ask("GET", f"/topics/{topic.name}/keys/k7?envelope=true")[2])
    assert row.keys() == page.keys()
    assert rows_of(lines_of(server, path, Accept_Encoding=coding)) == rows_of(lines)


def test_a_snapshot_goes_on_at_a_lane(server: StandingServer, topic: LoggedTopic):
    for number in range(30):
        topic.put(b"k%d" % number, b"1")
    path = f"/topics/{topic.name}/snapshot"
    lines = lines_of(server, path)
    ends = [index for index, line in enumerate(lines) if "lane" in line]
    cursor = lines[ends[3]]["lane"]["cursor"]
    rest = lines_of(server, f"{path}?cursor={cursor}")
    assert rest[-1] == {"end": {}}
    assert rows_of(lines[: ends[3]]) | rows_of(rest) == rows_of(lines)
    assert not rows_of(lines[: ends[3]]).keys() & rows_of(rest).keys()
    status, _, body = server.ask("GET", f"{path}?prefix=a&cursor={cursor}")
    assert (status, json.loads(body)["parameter"]) == (400, "cursor")


def test_rows_are_those_of_a_prefix_that_meet_the_conditions_with_the_fields_asked_for(
    server: StandingServer, logged_topic: Callable[..., LoggedTopic]
):
    topic = logged_topic(index=1, fields=(("amount", "number"),))
    for number in range(20):
        topic.put(b"%s|%d" % (b"ab"[number % 2 :][:1], number), b'{"amount": %d, "more": 1}' % number)
    lines = lines_of(server, f"/topics/{topic.name}/snapshot?prefix=a%7C&amount=10..&fields=amount")
    assert rows_of(lines) == {f"a|{number}": {"amount": number} for number in range(10, 20, 2)}
