from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import sys
import textwrap
from pathlib import Path

import aiohttp
import pytest

from keylane.model.routes import function_for
from keylane_local.front import environments
from keylane_local.front.environments import Function
from keylane_local.front.runtime_api import InitFailed
from keylane_local.front.server import MAX_EVENT_BYTES, FrontServer

HANDLER = """
import base64, json, os, signal, sys, threading, time

def lambda_handler(event, context):
    what = (event["queryStringParameters"] or {}).get("do", "echo")
    if what == "echo":
        print("served", context.aws_request_id)
        body = {"event": event, "pid": os.getpid(), "remaining_ms": context.get_remaining_time_in_millis(),
                "name": context.function_name, "arn": context.invoked_function_arn,
                "cwd": os.getcwd(), "region": os.environ["AWS_REGION"],
                "client": sys.modules["runtime_client"].__file__,
                "foreign": os.environ.get("FOREIGN"), "own": os.environ.get("OWN")}
        return {"statusCode": 200, "body": json.dumps(body),
                "multiValueHeaders": {"X-Many": ["a", "b"]}}
    if what == "bytes":
        return {"statusCode": 200, "isBase64Encoded": True, "headers": {"Content-Type": "image/png"},
                "body": event["body"] if event["isBase64Encoded"] else "bm90IGJ5dGVz"}
    if what == "wait":
        folder = event["queryStringParameters"]["at"]
        open(os.path.join(folder, str(os.getpid())), "w").close()
        while len(os.listdir(folder)) < int(event["queryStringParameters"]["for"]):
            time.sleep(0.01)
        return {"statusCode": 200, "body": str(os.getpid())}
    if what == "hang":
        time.sleep(60)
    if what == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "raise":
        raise ValueError("on purpose")
    if what == "malformed":
        return {"statusCode": "none"}
    if what == "huge":
        return {"statusCode": 200, "body": "x" * (7 * 1024 * 1024)}
"""


@pytest.fixture
def serving(tmp_path, monkeypatch):
    """Give a context manager: a front with one throw-away function, an HTTP client for it, and the front."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "handler.py").write_text(textwrap.dedent(HANDLER))
    monkeypatch.setenv("FOREIGN", "not for functions")

    @contextlib.asynccontextmanager
    async def serve(**bounds):
        function = Function(
            name="keylane-test",
            code=code,
            layer=tmp_path,
            log=tmp_path / "functions.log",
            variables={"OWN": "given"},
            **bounds,
        )
        front = FrontServer({"test": function}, route=lambda *_: "test")
        port = await front.open(0)
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
                yield front, client
        finally:
            await front.close()

    return serve


def test_a_request_reaches_a_real_runtime_and_its_answer_comes_back(serving, tmp_path):
    async def run():
        async with serving() as (_, client):
            url = "/topics/a%2Fb/keys/%C3%A9%20?tag=1&tag=2"
            headers = [("X-Twice", "one"), ("X-Twice", "two"), ("Content-Type", "application/json")]
            async with client.put(aiohttp.client.URL(url, encoded=True), headers=headers, data=b"{}") as got:
                assert got.status == 200
                assert got.headers.getall("X-Many") == ["a", "b"]
                assert got.headers["Content-Type"] == "application/json"
                return await got.json(), got.headers["x-amzn-RequestId"]

    answer, request_id = asyncio.run(run())
    event = answer["event"]
    assert event["path"] == "/topics/a%2Fb/keys/%C3%A9%20"
    assert event["multiValueQueryStringParameters"] == {"tag": ["1", "2"]}
    assert event["multiValueHeaders"]["X-Twice"] == ["one", "two"]
    assert event["body"] == "{}"
    assert event["requestContext"]["requestId"] == request_id
    assert answer["name"] == "keylane-test"
    assert answer["arn"].endswith(":keylane-test")
    assert answer["cwd"] == str(tmp_path / "code")
    assert answer["own"] == "given"
    assert answer["foreign"] is None
    assert 20_000 < answer["remaining_ms"] <= 29_000
    assert f"served {request_id}" in (tmp_path / "functions.log").read_text()


def test_bytes_go_through_unchanged_both_ways(serving):
    body = bytes(range(256)) * 100

    async def run():
        async with serving() as (_, client), client.post("/?do=bytes", data=body) as got:
            return got.headers["Content-Type"], await got.read()

    assert asyncio.run(run()) == ("image/png", body)


@pytest.mark.parametrize("do", ["bytes", "raise", "crash"])
def test_the_replacement_of_the_native_client_behaves_the_same(serving, monkeypatch, do):
    # The stand-in comes first here, so that it is taken where the native module is installed too.
    monkeypatch.setattr(environments, "_FALLBACK", {sys.platform: environments._FALLBACK["darwin"]})

    async def run():
        async with serving(max_environments=1) as (_, client):
            async with client.post(f"/?do={do}", data=b"\x00\xff") as got:
                first = got.status, await got.read()
            async with client.get("/") as got:
                return first, got.status, (await got.json())["client"]

    first, second, used = asyncio.run(run())
    assert used == str(Path(environments.__file__).parent / "fallback" / "runtime_client.py")
    assert first == ((200, b"\x00\xff") if do == "bytes" else (502, b'{"message": "Internal server error"}'))
    assert second == 200


def test_concurrent_requests_run_in_separate_environments(serving, tmp_path):
    meeting = tmp_path / "meeting"
    meeting.mkdir()

    async def run():
        async with serving(max_environments=3) as (front, client):

            async def one():
                async with client.get("/", params={"do": "wait", "at": str(meeting), "for": "3"}) as got:
                    return await got.text()

            first = await asyncio.gather(*(one() for _ in range(3)))
            again = await asyncio.gather(*(one() for _ in range(9)))
            return first, again, len(front.pools["test"].environments)

    first, again, environments = asyncio.run(run())
    assert len(set(first)) == 3
    assert set(again) <= set(first)  # kept warm, and never more than the bound
    assert environments == 3


def test_a_request_beyond_the_queues_limit_gets_429(serving):
    async def run():
        async with serving(max_environments=1, max_waiting=1, timeout_s=1.0) as (_, client):

            async def one():
                async with client.get("/?do=hang") as got:
                    return got.status, await got.json()

            return await asyncio.gather(*(one() for _ in range(3)))

    answers = asyncio.run(run())
    assert sorted(status for status, _ in answers) == [429, 504, 504]
    assert (429, {"message": "Too Many Requests"}) in answers


def test_a_function_that_times_out_is_killed_and_replaced(serving):
    async def run():
        async with serving(max_environments=1, timeout_s=0.5) as (front, client):
            before = [environment.pid for environment in front.pools["test"].environments]
            async with client.get("/?do=hang") as got:
                timed_out = got.status, await got.json()
            async with client.get("/") as got:
                return before, timed_out, (await got.json())["pid"]

    before, timed_out, after = asyncio.run(run())
    assert timed_out == (504, {"message": "Endpoint request timed out"})
    assert after not in before
    for pid in before:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("how", ["crash", "raise", "malformed", "huge"])
def test_a_crashing_function_causes_502_and_the_next_request_works(serving, how):
    async def run():
        async with serving(max_environments=1) as (_, client):
            async with client.get(f"/?do={how}") as got:
                broken = got.status, await got.json()
            async with client.get("/") as got:
                return broken, got.status

    assert asyncio.run(run()) == ((502, {"message": "Internal server error"}), 200)


def test_an_environment_killed_while_idle_is_replaced(serving):
    async def run():
        async with serving(max_environments=1) as (front, client):
            pool = front.pools["test"]
            victim = pool.environments[0]
            os.kill(victim.pid, signal.SIGKILL)
            async with asyncio.timeout(10):
                while victim.alive:  # noqa: ASYNC110 - only the process shows it
                    await asyncio.sleep(0.01)
            async with client.get("/") as got:
                return victim.pid, got.status, (await got.json())["pid"]

    victim, status, pid = asyncio.run(run())
    assert status == 200
    assert pid != victim


def test_a_handler_that_cannot_be_loaded_fails_the_start_with_the_reason(serving, tmp_path):
    async def run():
        (tmp_path / "code" / "handler.py").write_text("import nowhere_to_be_found")
        async with serving():
            raise AssertionError("it started")

    with pytest.raises(InitFailed, match="nowhere_to_be_found"):
        asyncio.run(run())
    assert "nowhere_to_be_found" in (tmp_path / "functions.log").read_text()


def test_a_handler_that_breaks_later_causes_502_and_never_hangs(serving, tmp_path):
    async def run():
        async with serving(max_environments=1) as (_, client):
            (tmp_path / "code" / "handler.py").write_text("import nowhere_to_be_found")
            statuses = []
            for url in ("/?do=crash", "/", "/"):
                async with client.get(url) as got:
                    statuses.append(got.status)
            return statuses

    assert asyncio.run(run()) == [502, 502, 502]


def test_a_body_over_the_limit_is_rejected_and_the_front_continues(serving):
    async def chunked():
        for _ in range(7):
            yield b"x" * 1024 * 1024

    async def run():
        async with serving() as (_, client):
            statuses = []
            bodies = [io.BytesIO(b"x" * size) for size in (MAX_EVENT_BYTES + 1, MAX_EVENT_BYTES - 1000)]
            for body in (*bodies, chunked()):
                async with client.post("/", data=body) as got:
                    statuses.append((got.status, (await got.json())["message"]))
            async with client.get("/") as got:
                return statuses, got.status

    statuses, after = asyncio.run(run())
    assert statuses == [(413, "Request Too Long")] * 3
    assert after == 200


def test_head_has_the_headers_of_get_and_no_body(serving):
    async def run():
        async with serving() as (_, client), client.head("/") as got:
            return got.status, int(got.headers["Content-Length"]) > 0, await got.read()

    assert asyncio.run(run()) == (200, True, b"")


def test_closing_the_front_ends_its_environments(serving):
    async def run():
        async with serving() as (front, client):
            async with client.get("/") as got:
                assert json.loads(await got.text())
            return [environment.pid for environment in front.pools["test"].environments]

    for pid in asyncio.run(run()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("method", "path", "function"),
    [
        ("GET", "/topics/t/keys/k", "query"),
        ("POST", "/topics/t/keys:read", "query"),
        ("GET", "/join/k", "query"),
        ("PUT", "/topics/t/keys/a:read", "produce"),
        ("PUT", "/topics/t/keys/keys:read", "produce"),
        ("DELETE", "/topics/t/keys/k", "produce"),
        ("DELETE", "/topics/t/keys/", "produce"),
        ("PUT", "/topics/t", "explore"),
        ("DELETE", "/topics/t/keys/k/history", "query"),
        ("POST", "/topics/t/keys/k", "query"),
        ("POST", "/push", "produce"),
        ("GET", "/push", "produce"),
        ("POST", "/push/", "query"),
        ("POST", "/topics/t", "produce"),
        ("GET", "/topics/t", "explore"),
        ("POST", "/topics/t/partitions/3", "produce"),
        ("POST", "/topics/t/partitions", "explore"),
        ("GET", "/topics", "explore"),
        ("GET", "/topics/t/partitions", "explore"),
        ("HEAD", "/topics/t/partitions/0", "explore"),
        ("GET", "/topics/t/partitions/0/offsets", "explore"),
        ("GET", "/topics/t/partitions/0/records", "explore"),
        ("GET", "/topics/t/partitions/0/other", "query"),
        ("GET", "/topics/t/keys/partitions", "query"),
        ("GET", "/topics/partitions/keys/records", "query"),
        ("PUT", "/topics/partitions/keys/records", "produce"),
        ("GET", "/clusters", "explore"),
        ("GET", "/health", "explore"),
    ],
)
def test_each_request_goes_to_the_function_that_serves_it(method, path, function):
    assert function_for(method, path) == function
