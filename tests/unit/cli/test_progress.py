"""`keylane status`: what it says of topics and views."""

from __future__ import annotations

import httpx
import pytest

import keylane_client
from keylane_cli import progress
from keylane_cli.progress import StatusLine, read_progress

CLIENT = keylane_client.Client
TOPIC = {"partitions": 1, "stripes": 1, "lag": 5, "age_ms": 1500, "lanes": []}
LANE = {
    "partition": 0,
    "stripe": 0,
    "slot": 1,
    "shard": "a:1",
    "next_offset": 5,
    "log_end": 10,
    "lag": 5,
    "incomplete": False,
    "has_strays": False,
}
PROBLEM = {"type": "urn:keylane:problem:", "title": "", "status": 404, "detail": "why"}
ANSWERS = {
    "/topics/a": (200, TOPIC | {"topic": "a", "next": {"generation": 4, "percent": 30}}),
    "/topics/b": (200, TOPIC | {"topic": "b", "building": True, "lanes": [LANE | {"building": True}]}),
    "/topics/c": (404, PROBLEM | {"type": "urn:keylane:problem:unknown-topic"}),
    "/views": (200, {"views": [{"view": "v"}, {"view": "w"}]}),
    "/views/v": (200, {"age_ms": 100, "late": 3, "invalid": 0}),
    "/views/w": (200, {"stopped": "no such column"}),
    "/views/x": (404, PROBLEM | {"type": "urn:keylane:problem:view-not-opened"}),
}


@pytest.fixture
def config(tmp_path, monkeypatch):
    def answer(request: httpx.Request) -> httpx.Response:
        status, document = ANSWERS[request.url.path]
        return httpx.Response(status, json=document)

    monkeypatch.setattr(
        progress,
        "Client",
        lambda url, auth, options: CLIENT(url, auth, options=options, transport=httpx.MockTransport(answer)),
    )
    file = tmp_path / "keylane.toml"
    file.write_text("[topics.a]\n[topics.b]\n[topics.c]\n[views.x]\n")
    return file


def test_topics_and_views_have_a_line_each_with_what_is_going_on(config):
    assert list(read_progress("http://api.test", None, config)) == [
        StatusLine("topic a", "complete", "lag 5, age 1.5 s, generation 4 is being built, 30 %"),
        StatusLine("topic b", "building, 50 %", "lag 5, age 1.5 s"),
        StatusLine("topic c", "not there", "404 unknown-topic: why"),
        StatusLine("view x", "not there", "404 view-not-opened: why"),
        StatusLine("view v", "complete", "age 0.1 s, 3 late"),
        StatusLine("view w", "stopped", "no such column"),
    ]


def test_an_api_that_is_away_is_one_line(tmp_path):
    [line] = read_progress("http://127.0.0.1:1", None, tmp_path / "none.toml")
    assert line.name == "api"
    assert line.state.startswith("http://127.0.0.1:1: ")
