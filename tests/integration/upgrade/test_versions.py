"""What each version has left behind, with today's job, readers and functions (`tests.upgrade.versions`)."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.contract.hosts.checkouts import Checkout
from tests.contract.hosts.lambda_host import lambda_host
from tests.servers.aws import Mapping
from tests.servers.own import eventually, messages_of
from tests.servers.standing import ready
from tests.support.events import listening
from tests.support.jobs import State
from tests.upgrade import sample
from tests.upgrade.live import CheckoutServer, start_job
from tests.upgrade.versions import append, restore, restore_queue, versions

from keylane_cli.replay import ReplayRequest, replay
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.aws import Aws
    from tests.support.jobs import RunningJob
    from tests.support.replies import Reply
    from tests.upgrade.sample import Row
    from tests.upgrade.versions import Kept, Version

TODAY = Checkout.at(project_root())
NEWEST = versions()[-1]
"""That from which most are upgraded is in `make test`; `make long` has all before it."""
MORE = 240
"""Records that are written behind those of the version."""
VOLATILE = {"age_ms", "shard", "instance"}
"""Fields of the server and the moment, not of the state."""
PROMISED = (
    "etag",
    "keylane-position",
    "keylane-watermark",
    "keylane-incomplete",
    "last-modified",
    "content-type",
)
UNKNOWN_ROUTE = "urn:keylane:problem:unknown-route"


@dataclass(frozen=True, slots=True)
class Restored:
    """A version's state, log and queue in today's servers. `variables`: the version's settings for them."""

    version: Version
    redis: str
    kafka: str
    aws: Aws
    variables: dict[str, str]

    def topic(self, name: str) -> str:
        return f"{self.version.prefix}-{name}"

    @contextlib.contextmanager
    def state(self, name: str) -> Iterator[State]:
        with contextlib.closing(State(self.redis, self.topic(name))) as state:
            yield state


@dataclass(frozen=True, slots=True)
class Continued:
    """The state once today's job has read more. `before`: the generations that the version left."""

    restored: Restored
    server: CheckoutServer
    job: RunningJob
    log: list[Row]
    more: list[Row]
    before: dict[str, int]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(each, id=each.folder.name, marks=[] if each == NEWEST else [pytest.mark.long])
        for each in versions()
    ],
)
def restored(request: pytest.FixtureRequest, redis_cluster: str, kafka: str, moto: Aws) -> Restored:
    version: Version = request.param
    restore(version, redis_cluster, kafka)
    places = {"redis": redis_cluster, "kafka": kafka, **restore_queue(version, moto)}
    variables = {**version.environment(places), **moto.environment}
    return Restored(version, redis_cluster, kafka, moto, variables)


@pytest.fixture(scope="module")
def server(restored: Restored, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CheckoutServer]:
    log = tmp_path_factory.mktemp("upgrade") / "log"
    with ready(CheckoutServer(TODAY, restored.variables, log)) as running:
        yield running


@pytest.fixture(scope="module")
def read(restored: Restored, server: CheckoutServer) -> list[tuple[Kept, Reply]]:
    """The version's requests with today's answers, before a job of today has run."""
    asked = [kept for kept in restored.version.answers if kept.method in {"GET", "POST"}]
    return [(kept, server.ask(kept.method, kept.path, kept.body)) for kept in asked]


@pytest.fixture(scope="module")
def pages(restored: Restored, server: CheckoutServer) -> list[tuple[str, list[Any], list[Any]]]:
    """Lists of which the version gave a first page: path, that page and those behind it, all at once."""
    found = []
    for kept in restored.version.answers:
        if kept.method == "GET" and (cursor := document(kept.answer).get("next")):
            rows = rows_of(kept.answer)
            while cursor:
                reply = server.ask("GET", f"{kept.path}&cursor={quote(cursor)}")
                assert reply.status == 200, reply
                rows += rows_of(reply.body)
                cursor = document(reply.body).get("next")
            path, _, query = kept.path.partition("?")
            rest = "&".join(each for each in query.split("&") if not each.startswith("limit="))
            found.append((kept.path, rows, rows_of(server.ask("GET", f"{path}?limit=500&{rest}").body)))
    return found


@pytest.fixture(scope="module")
def conditional(restored: Restored, server: CheckoutServer) -> list[tuple[str, int]]:
    """Requests with the ETags that the version gave."""
    tagged = [
        kept for kept in restored.version.answers if kept.status == 200 and "etag" in kept.answer_headers
    ]
    return [
        (
            kept.path,
            server.ask("GET", kept.path, headers={"If-None-Match": kept.answer_headers["etag"]}).status,
        )
        for kept in tagged
    ]


@pytest.fixture(scope="module")
def continued(
    restored: Restored,
    server: CheckoutServer,
    read: object,
    pages: object,
    conditional: object,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Continued]:
    """Today's job, behind everything that was read of the version's state.

    Kafka has nothing any more of what the version's job has read: a job that read it again would find
    nothing.
    """
    version = restored.version
    ends = [
        TopicPartition(restored.topic(name), partition, -1)
        for name in version.topics
        for partition in range(version.about["partitions"][name])
    ]
    admin = AdminClient({"bootstrap.servers": restored.kafka})
    for deleted in admin.delete_records(ends).values():
        deleted.result(30)
    before = {}
    for name in version.topics:
        with restored.state(name) as state:
            assert state.layout
            before[name] = state.layout.generation
    more = sample.rows(len(version.log), MORE, version.topics, grown=sample.GROWN)
    folder = tmp_path_factory.mktemp("continued")
    job = start_job(TODAY, restored.kafka, restored.redis, folder, version.config)
    try:
        job.wait_for("keylane: ready")
        append(restored.kafka, version.prefix, more)
        yield Continued(restored, server, job, [*version.log, *more], more, before)
    finally:
        job.end()


def document(answer: str | bytes) -> dict[str, Any]:
    """A JSON object; empty if the answer is something else."""
    try:
        found = json.loads(answer)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def rows_of(answer: str | bytes) -> list[Any]:
    found = document(answer)
    return [stable(each) for each in found.get("records", found.get("windows", []))]


def stable(value: Any) -> Any:
    """The JSON without what is of the server and the moment."""
    if isinstance(value, dict):
        return {name: stable(each) for name, each in value.items() if name not in VOLATILE}
    return [stable(each) for each in value] if isinstance(value, list) else value


def stored(state: State, keys: list[str]) -> dict[str, str | int | None]:
    """The values of keys as a reader finds them; of one that was left in Kafka its size."""
    with contextlib.closing(state.reader(layout_ttl_s=0)) as reader:
        records = {key: reader.latest(key.encode()).record for key in keys}
    return {key: each and (each.left_in_kafka_bytes or row_in(each.value)) for key, each in records.items()}


def row_in(value: bytes) -> str:
    """The value, or the row of a change event."""
    event = document(value)
    return json.dumps(event["after"]) if "after" in event else value.decode()


def expected(log: list[Row], topic: str) -> dict[str, str | int | None]:
    """The fold of the log, as `stored` returns it."""
    limit, found = sample.TOPICS[topic].value_limit, sample.fold(log, topic)
    values = {key: found.get(key) for key in sample.keys_of(topic)}
    return {key: len(value) if value and len(value) > limit else value for key, value in values.items()}


def test_readers_answer_as_those_of_the_version_did(restored: Restored, read: list[tuple[Kept, Reply]]):
    compared = 0
    for kept, reply in read:
        if document(kept.answer).get("type") == UNKNOWN_ROUTE:
            continue  # it came later
        assert reply.status == kept.status, (kept.path, reply)
        before, answer = stable(document(kept.answer)), stable(document(reply.body))
        if "/find?" in kept.path and "next" in before:
            # Its cursor says by now of which types its values are. The version's own goes on: see below.
            assert answer.pop("next")
            assert before.pop("next")
        assert without_added(answer, before) == before, kept.path
        for name in PROMISED:
            assert reply.headers.get(name) == kept.answer_headers.get(name), (kept.path, name)
        compared += 1
    assert compared > len(restored.version.topics) * 5


def without_added(answer: Any, before: Any) -> Any:
    """The answer without members that the version did not have: a version may add some."""
    if isinstance(answer, dict) and isinstance(before, dict):
        return {name: without_added(each, before[name]) for name, each in answer.items() if name in before}
    return answer


def test_the_state_of_the_version_is_the_fold_of_its_log(restored: Restored, read: list[tuple[Kept, Reply]]):
    for topic in restored.version.topics:
        path = f"/topics/{restored.topic(topic)}/keys:read"
        [reply] = [reply for kept, reply in read if kept.path == path]
        found = {each.get("key"): each for each in rows_of(reply.body)}
        for key, value in expected(restored.version.log, topic).items():
            assert found[key].get("absent", False) == (value is None), (topic, key)
            if isinstance(value, str):
                have = found[key]["value"]
                assert (have if isinstance(have, str) else json.dumps(have)) == value


def test_a_cursor_of_the_version_continues_its_list(pages: list[tuple[str, list[Any], list[Any]]]):
    kinds = {path.partition("?")[0].rpartition("/")[2] for path, _, _ in pages}
    assert kinds - {"find"} == {"keys", "history"}  # find came later
    assert any(path.startswith("/views/") for path, _, _ in pages)
    assert any("as_of" in path for path, _, _ in pages)
    for path, paged, whole in pages:
        assert paged == whole, path


def test_an_etag_of_the_version_is_still_that_of_its_record(
    restored: Restored, conditional: list[tuple[str, int]]
):
    assert len(conditional) > len(restored.version.topics)
    assert {path: status for path, status in conditional if status != 304} == {}


def test_a_request_that_the_version_has_answered_is_not_written_again(
    restored: Restored, server: CheckoutServer
):
    [kept] = [kept for kept in restored.version.answers if kept.method == "PUT"]
    topic = kept.path.split("/")[2]
    before = [len(messages_of(restored.kafka, topic, partition)) for partition in range(2)]
    reply = server.ask(kept.method, kept.path, kept.body, kept.headers)
    assert (reply.status, reply.body.decode()) == (kept.status, kept.answer)
    assert reply.headers["idempotency-replayed"] == "true"
    assert [len(messages_of(restored.kafka, topic, partition)) for partition in range(2)] == before


def test_the_job_continues_where_that_of_the_version_ended(continued: Continued):
    for topic in continued.restored.version.topics:
        wanted = expected(continued.log, topic)
        with continued.restored.state(topic) as state:
            with contextlib.suppress(AssertionError):
                eventually(lambda state=state, wanted=wanted: stored(state, list(wanted)) == wanted)
            assert stored(state, list(wanted)) == wanted, topic
            assert state.layout
            assert state.layout.generation == continued.before[topic]
            marks = state.watermarks()
            assert all(mark and not mark.incomplete for mark in marks.values()), (topic, marks)


def test_a_history_and_an_index_continue_those_of_the_version(continued: Continued):
    path = f"/topics/{continued.restored.topic('kept')}/keys"
    state = sample.fold(continued.log, "kept")
    live = sorted(key for key, value in state.items() if value is not None)

    def is_current() -> bool:
        return [
            each["key"] for each in rows_of(continued.server.ask("GET", f"{path}?limit=500").body)
        ] == live

    eventually(is_current)
    for key in sample.keys_of("kept"):
        of_key = [row for row in continued.log if (row.topic, row.key) == ("kept", key)]
        found = rows_of(continued.server.ask("GET", f"{path}/{quote(key)}/history?limit=100").body)
        assert [each["timestamp"] for each in found] == [row.at_ms for row in reversed(of_key[-5:])], key


def test_views_count_each_record_once(continued: Continued):
    counted = [row for row in continued.log if row.topic == "plain" and row.value is not None]
    totals = Counter(row.key for row in counted)
    sums = {key: sum(json.loads(row.value or "")["n"] for row in counted if row.key == key) for key in totals}

    def windows(view: str) -> list[dict[str, Any]]:
        return rows_of(
            continued.server.ask("GET", f"/views/{continued.restored.topic(view)}/keys?limit=500").body
        )

    def has_counted(view: str, times: int) -> bool:
        found: Counter[str] = Counter()
        for window in windows(view):
            found[window["key"]] += window["values"]["n"]
        return found == Counter({key: times * count for key, count in totals.items()})

    eventually(lambda: has_counted("totals", 1))
    eventually(lambda: has_counted("hours", 2))
    eventually(lambda: has_counted("sessions", 1))
    assert {each["key"]: each["values"]["total"] for each in windows("totals")} == sums


def test_streams_continue_at_the_ids_that_the_version_gave(continued: Continued):
    kept = {each.path: each.answer for each in continued.restored.version.answers if each.method == "EVENTS"}
    topic = continued.restored.topic("plain")
    left = Counter({row.key: row.value for row in continued.more if row.topic == "plain"})
    path = f"/topics/{topic}/changes"
    with listening(continued.server.url, path, Last_Event_ID=kept[path]) as stream:
        names = set()
        while left:
            event = stream.next()
            assert event is not None
            names.add(event.name)
            value = None if event.name == "absent" else json.dumps(event.json["value"])
            if left.get(event.json["key"], "") == value:
                del left[event.json["key"]]
        assert "gap" not in names
    path = f"/topics/{topic}/keys/k1/changes"
    last = expected(continued.log, "plain")["k1"]
    with listening(continued.server.url, path, Last_Event_ID=kept[path]) as stream:
        event = stream.next()
        assert event is not None
        assert event.id != kept[path]
        assert (None if event.name == "absent" else json.dumps(event.json["value"])) == last


def test_drain_writes_the_messages_of_the_version(restored: Restored, tmp_path: Path):
    topic = restored.topic(sample.QUEUED)
    with lambda_host(TODAY, restored.variables, tmp_path / "log") as host:
        mapping = Mapping(
            restored.aws,
            restored.variables["KEYLANE_QUEUE_URL"],
            lambda event: dict(host.invoke("drain", event)["answer"]),
        )
        mapping.drain()
    written = [each for partition in range(2) for each in messages_of(restored.kafka, topic, partition)]
    found = {each.key(): each for each in written if each.headers()}
    large = json.dumps({"large": "x" * 5_000}).encode()
    values = {None: b'{"n":2}', b"\x00\xff": b"\x00\xff", b"gone": None, b"full": b'{"n":1}', b"large": large}
    assert {key: each.value() for key, each in found.items()} == {
        **values,
        b"put": b'{"n": 3}',
        b"pushed": b"4",
    }
    full = found[b"full"]
    assert (full.partition(), full.timestamp()[1]) == (1, sample.BASE_MS)
    assert [("h", b"1"), ("é", "ü".encode())] == [each for each in full.headers() if each[0] != "keylane-id"]
    assert len({dict(each.headers())["keylane-id"] for each in found.values()}) == len(found)


def test_dead_letters_of_the_version_are_replayed(
    restored: Restored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in restored.aws.environment.items():
        monkeypatch.setenv(name, value)
    queue, dead = (restored.variables[f"KEYLANE_{name}_URL"] for name in ("QUEUE", "DLQ"))
    report = replay(ReplayRequest(dead, queue), restored.aws.environment)
    topic = restored.topic(sample.REFUSED)
    assert report.moved == {(topic, "MESSAGE_TOO_LARGE"): 1}
    with lambda_host(TODAY, restored.variables, tmp_path / "log") as host:
        Mapping(restored.aws, queue, lambda event: dict(host.invoke("drain", event)["answer"])).drain()
    assert [each.key() for each in messages_of(restored.kafka, topic, 0)] == [b"dead"]
