"""`keylane status`: what it says of topics and views."""

from __future__ import annotations

from datetime import datetime, timedelta

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
OLD = {"age_ms": 95_000}
HEALTH = {"live": True, "ready": False, "parts": {"kafka": {"ready": False, "why": "refused"}}}
PROBLEM = {"type": "urn:keylane:problem:", "title": "", "status": 404, "detail": "why"}
ANSWERS = {
    "/topics/a": (200, TOPIC | {"topic": "a", "next": {"generation": 4, "percent": 30}}),
    "/topics/b": (200, TOPIC | {"topic": "b", "building": True, "lanes": [LANE | {"building": True}]}),
    "/topics/c": (404, PROBLEM | {"type": "urn:keylane:problem:unknown-topic"}),
    "/topics/d": (200, TOPIC | {"topic": "d", "lag": 0} | OLD),
    "/views": (200, {"views": [{"view": "v"}, {"view": "w"}]}),
    "/views/v": (200, {"age_ms": 100, "late": 3, "invalid": 31}),
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
        StatusLine("view v", "complete", "3 late, 31 invalid (no key, no time, or not decodable), age 0.1 s"),
        StatusLine("view w", "stopped", "no such column"),
    ]


@pytest.mark.parametrize(
    ("down", "health", "why"),
    [
        (["job"], None, "job does not run"),
        (["kafka", "job"], None, "kafka, job do not run"),
        ([], (503, HEALTH), "kafka: refused"),
        (
            [],
            (200, {"live": True, "ready": True, "parts": {"kafka": {"ready": True}}}),
            "the job does not run",
        ),
        ([], (403, PROBLEM | {"type": "urn:keylane:problem:forbidden"}), "403 forbidden: why"),
    ],
)
def test_a_topic_that_is_old_is_not_complete_and_says_since_when_and_what_is_down(
    config, monkeypatch, down, health, why
):
    config.write_text("[topics.d]\n")
    monkeypatch.setitem(ANSWERS, "/views", (200, {"views": []}))
    monkeypatch.setitem(ANSWERS, "/health", health)
    [line] = read_progress("http://api.test", None, config, down)
    since = datetime.now() - timedelta(seconds=95)  # noqa: DTZ005 (as a user's clock shows it)
    assert (line.name, line.state) == ("topic d", "old")
    assert line.details.startswith(f"nothing is known since {since:%Y-%m-%d %H:}")
    assert why in line.details
    assert "lag" not in line.details


def test_an_api_that_is_away_is_one_line(tmp_path):
    [line] = read_progress("http://127.0.0.1:1", None, tmp_path / "none.toml")
    assert line.name == "api"
    assert line.state.startswith("http://127.0.0.1:1: ")
