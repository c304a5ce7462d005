"""The commands that talk to an API: what they print, what they refuse, and their exit codes."""

from __future__ import annotations

import io
import json
import os
from datetime import timedelta
from importlib.metadata import version

import click
import httpx
import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.unit.client.api_double import (
    FRESH,
    ApiDouble,
    counted,
    found,
    found_bytes,
    page,
    problem,
    row,
    written,
)

import keylane_client
from keylane_client.cli import access, open_in_browser, records
from keylane_client.cli.commands import COMMANDS, keylane
from keylane_client.cli.errors import BadArgument, CommandFailed
from keylane_client.cli.lanes import render_layout

CLIENT = keylane_client.Client


@pytest.fixture
def run(monkeypatch):
    """Run a command against an API that gives these answers; return its output, and the API."""
    for name in ("KEYLANE_URL", "KEYLANE_API_KEY", "KEYLANE_AUTHORIZATION"):
        monkeypatch.delenv(name, raising=False)

    def run_command(arguments: list[str], *answers, stdin: bytes | None = None):
        double = ApiDouble(*answers)

        def connect(url, auth=None, *, options=None):
            return CLIENT(url, auth, options=options, transport=httpx.MockTransport(double._answer))

        monkeypatch.setattr(access.api, "Client", connect)
        result = CliRunner().invoke(
            keylane, [*arguments, "--url", "https://api.test/v1"], input=stdin, catch_exceptions=True
        )
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result, double

    return run_command


def test_get_prints_the_value_byte_for_byte_and_json_has_all_of_it(run):
    answer = found_bytes(b'{"fare": 12.50}')
    result, _ = run(["get", "t", "k"], answer)
    assert result.stdout == '{"fare": 12.50}\n'
    result, _ = run(["get", "t", "k", "--json"], answer)
    document = json.loads(result.stdout)
    assert (document["position"], document["age_ms"], document["value"]) == ("2:7", 250, {"fare": 12.5})
    assert '"value": {"fare": 12.50}' in result.stdout


def test_several_keys_are_read_in_one_request_and_a_missing_one_ends_with_3(run):
    record = row("a") | {"value": {"n": 1.10}}
    absent = {"topic": "t", "key": "b", "key_format": "text", "absent": True}
    body = json.dumps({"records": [record, absent]}).replace("1.1", "1.10")
    result, api = run(["get", "t", "a", "b"], httpx.Response(200, text=body))
    assert (result.stdout, result.exit_code) == ('a\t{"n": 1.10}\nb\tabsent\n', 3)
    assert len(api.requests) == 1
    with pytest.raises(BadArgument, match="are for one key"):
        run(["get", "t", "a", "b", "--at", "5"])


def test_a_join_has_a_line_for_each_topic(run):
    record = row("k") | {"value": [1]}
    document = {"key": "k", "key_format": "text", "records": {"t": record, "u": {"absent": True}}}
    result, api = run(["join", "k", "t", "u"], httpx.Response(200, json=document))
    assert result.stdout == "t\t[1]\nu\tabsent\n"
    assert api.requests[0].url.params["topics"] == "t,u"


def test_a_find_sends_its_conditions_as_they_are_and_prints_a_line_for_each_record(run):
    answer = httpx.Response(200, json={**page("a").json(), "scanned": 1})
    conditions = ["status=open", "amount=10..20", "tags=a", "tags=b=c", ".limit=5"]
    result, api = run(["find", "t", *conditions, "--order", "-placed", "-n", "1", "--fields", "k"], answer)
    assert result.stdout == 'a\t{"k": "a"}\n'
    assert api.requests[0].url.params.multi_items() == [
        (".status", "open"),
        (".amount", "10..20"),
        (".tags", "a"),
        (".tags", "b=c"),
        (".limit", "5"),
        ("limit", "1"),
        ("fields", "k"),
        ("order", "-placed"),
    ]
    result, api = run(["find", "t", "a=1", "--json", "--min-position", "2:7", "--wait", "3"], answer)
    assert json.loads(result.stdout)["position"] == "2:7"
    assert api.requests[0].url.params["limit"] == "1000"
    assert api.requests[0].headers["keylane-min-position"] == "2:7"
    _, api = run(["find", "t", "a=1", "--prefix", "ann|"], answer)
    assert api.requests[0].url.params["prefix"] == "ann|"


def test_a_find_counts_and_refuses_what_it_cannot_mean(run):
    counted_so_far = httpx.Response(200, json={"count": 7, "scanned": 0})
    assert run(["find", "t", "status=open", "--count"], counted_so_far)[0].stdout == "7\n"
    for arguments, text in (
        (["status"], "'status' is not a condition: it looks like status=open"),
        (["=open"], "is not a condition"),
        (["a=1", "--count", "-n", "1"], "--count counts all records"),
        (["a=1", "--wait", "1"], "--wait is for --min-position"),
    ):
        with pytest.raises(BadArgument, match=text):
            run(["find", "t", *arguments])


def test_views_are_listed_with_what_they_compute_or_why_they_do_not_run(run):
    view = {"view": "v", "topic": "t", "window": {"kind": "none"}, "columns": ["a", "b"]}
    answer = httpx.Response(200, json={"views": [view, {"view": "w", "stopped": "no topic"}]})
    assert run(["views"], answer)[0].stdout == "v\tt\tnone\ta,b\nw\tstopped: no topic\n"


def test_windows_are_those_of_a_key_or_of_a_prefix_of_keys(run):
    window = {"key": "a", "key_format": "text", "start": 0, "end": 60_000, "final": True, "changed": 5}
    answer = httpx.Response(200, json={"windows": [window | {"values": {"n": 1}}], "age_ms": 5})
    result, api = run(["windows", "v", "a", "--final", "-n", "1"], answer)
    line = '1970-01-01T00:00:00+00:00\t1970-01-01T00:01:00+00:00\t{"n": 1}\n'
    assert result.stdout == f"a\t{line}"
    assert api.requests[0].url.path == "/v1/views/v/keys/a"
    _, api = run(["windows", "v", "--prefix", "x"], answer)
    assert api.requests[0].url.params["prefix"] == "x"
    with pytest.raises(BadArgument, match="exclude each other"):
        run(["windows", "v", "a", "--prefix", "x"])


def test_put_takes_the_content_of_a_file(run, tmp_path):
    (tmp_path / "value").write_bytes(b"\xff\n")
    _, api = run(["put", "t", "k", f"@{tmp_path / 'value'}"], written(7))
    assert api.requests[0].content == b"\xff\n"
    with pytest.raises(BadArgument, match="a value that begins with @ goes by standard input"):
        run(["put", "t", "k", "@nowhere"], written(7))


def test_the_version_is_that_of_the_client():
    assert (
        CliRunner().invoke(keylane, ["--version"]).stdout == f"keylane, version {version('keylane-client')}\n"
    )


@pytest.mark.parametrize(
    ("answer", "exit_code", "text"),
    [
        (problem(404, "key-absent"), 3, "404 key-absent: D"),
        (problem(403, "forbidden"), 4, "Use --api-key, --authorization or --sign"),
        (problem(503, "state-unavailable", Retry_After="99"), 6, "try again in 99 s"),
        (problem(400, "bad-request"), 1, "400 bad-request"),
        (httpx.Response(200, text="<html>"), 1, "is the URL that of Keylane"),
    ],
)
def test_an_error_is_one_sentence_with_an_exit_code_and_no_secret(run, answer, exit_code, text):
    arguments = ["get", "t", "k", "--min-position", "0:1", "--authorization", "Bearer top-secret"]
    with pytest.raises(CommandFailed) as caught:
        run(arguments, answer, answer)
    assert caught.value.exit_code == exit_code
    assert text in str(caught.value)
    assert "top-secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_api_that_is_away_is_said_to_be(monkeypatch):
    monkeypatch.setattr(keylane_client.RetryPolicy, "wait_s", lambda *_: 0)
    arguments = ["topics", "--url", "http://127.0.0.1:1"]
    result = CliRunner().invoke(keylane, arguments)
    assert isinstance(result.exception, CommandFailed)
    assert result.exception.exit_code == 5
    assert "`keylane up`" in str(result.exception)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--api-key", "a", "--authorization", "Bearer b"],
        ["--authorization", "abc"],
        ["--url", "localhost:8080"],
    ],
)
def test_access_that_is_not_clear_is_refused(arguments):
    result = CliRunner().invoke(keylane, ["topics", *arguments])
    assert isinstance(result.exception, BadArgument)


def test_put_takes_a_value_or_standard_input_and_prints_the_position(run):
    result, api = run(["put", "t", "k", "{}"], written(7))
    assert (result.stdout, api.requests[0].content) == ("2:7\n", b"{}")
    _, api = run(["put", "t", "k"], written(7), stdin=b"\xff")
    assert api.requests[0].content == b"\xff"


def test_a_value_that_is_no_text_is_written_as_the_shell_gave_it(run):
    _, api = run(["put", "t", "k", os.fsdecode(b"\xff")], written(7))
    assert api.requests[0].content == b"\xff"


def test_put_without_a_value_and_with_closed_standard_input_says_so(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(BadArgument, match="standard input is closed"):
        records._read_value(None)


def test_a_scan_stops_at_its_limit(run):
    result, api = run(["scan", "t", "--limit", "2"], page("a", "b", "c", cursor="x"))
    assert result.stdout == 'a\t{"k": "a"}\nb\t{"k": "b"}\n'
    assert len(api.requests) == 1


def test_a_count_is_printed_as_a_number(run):
    assert run(["count", "t"], counted(1_234))[0].stdout == "1234\n"
    assert run(["count", "t", "--json"], counted(1_234))[0].stdout == "1234\n"


def test_a_watch_prints_changes_as_they_come(run):
    answers = problem(404, "key-absent", **FRESH), problem(501, "not-streamed"), found(1)
    result, _ = run(["watch", "t", "k", "-n", "2"], *answers)
    assert result.stdout == "2:8\tabsent\n2:7\t1\n"


@pytest.mark.parametrize("arguments", [["tail", "t"], ["watch", "t", "k"]])
def test_ctrl_c_ends_what_follows_without_an_error(run, monkeypatch, arguments):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(keylane_client.Topic, arguments[0], interrupted)
    result, _ = run(arguments)
    assert (result.exit_code, result.stdout) == (0, "")


def test_a_tail_prints_time_position_key_and_value(run):
    def records(*rows):
        end = {"next_offset": 9, "watermarks": {"low": 0, "high": 9}}
        return httpx.Response(200, json={"records": list(rows), **end})

    record = {"partition": 0, "offset": 7, "timestamp": 5, "headers": []}
    rows = [
        record | {"key": "k", "key_format": "text", "value": {"a": 1}, "value_format": "json"},
        record | {"key": None, "key_format": "null", "value": None, "value_format": "null"},
    ]
    partitions = httpx.Response(200, json={"partitions": [{"partition": 0}]})
    offset = httpx.Response(200, json={"offset": 7})
    result, _ = run(["tail", "t", "-n", "2"], partitions, offset, partitions, records(*rows))
    assert result.stdout == '5\t0:7\tk\t{"a": 1}\n5\t0:7\t-\tdeleted\n'


def test_open_leads_to_the_topics_where_there_is_no_console(run, monkeypatch):
    monkeypatch.setattr(open_in_browser.httpx, "get", lambda *_, **__: httpx.Response(404))
    opened = []
    monkeypatch.setattr(open_in_browser.webbrowser, "open", lambda url: bool(opened.append(url)))
    health = httpx.Response(200, json={"live": True, "ready": True, "parts": {}})
    result, _ = run(["open"], health)
    assert (result.stdout, opened) == ("https://api.test/v1/topics\n", ["https://api.test/v1/topics"])
    assert "open the URL in yours" in result.stderr
    page = httpx.Response(200, text="<html>", headers={"Content-Type": "text/html"})
    monkeypatch.setattr(open_in_browser.httpx, "get", lambda *_, **__: page)
    result, _ = run(["open", "--no-browser", "--json"], health)
    assert json.loads(result.stdout) == {"url": "https://api.test/v1/console", "opened": False}


@pytest.mark.parametrize("width", [40, 120])
def test_lanes_are_a_table_for_each_shard_however_narrow(width):
    def lane(partition, shard, lag):
        return keylane_client.Lane(
            partition,
            0,
            partition * 5000,
            shard,
            10,
            10 + lag,
            lag,
            lag > 0,
            False,
            False,
            timedelta(seconds=1),
        )

    lanes = (lane(0, "a:1", 0), lane(1, "b:2", 5))
    layout = keylane_client.TopicLayout("flights", 2, 1, 5, timedelta(seconds=1), lanes, {})
    out = Console(file=io.StringIO(), width=width)
    render_layout(layout, out)
    text = out.file.getvalue()
    assert "shard a:1" in text
    assert "building" in text
    assert max(map(len, text.splitlines())) <= width


def test_every_command_that_asks_an_api_takes_a_url_and_json():
    for name in {*COMMANDS, "doctor"} - {"login", "logout"}:
        command = keylane.get_command(click.Context(keylane), name).load()
        assert {"--url", "--json", "--sign"} <= {option for each in command.params for option in each.opts}
