"""The corpus of values through real jobs: reads, finds, topics and views make of each what the page says.

`test_value_corpus.py` writes docs/contribute/values.md, by the job's functions in one session of Spark.
"""

from __future__ import annotations

import base64
import json
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.records.values import corpus
from tests.servers.own import create_topic, eventually, produce
from tests.support import jobs
from tests.support.views import eventually_equal

from keylane.formats.change_events import parse_event
from keylane.formats.json_text import parse_verbatim
from keylane.model.records import Options
from keylane.state.field_index import indexes_of
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.records.values import Value
    from tests.support.views import Query

PAGE = project_root() / "docs" / "contribute" / "values.md"
TOPICS = {
    "plain": 'fields = { v = "text" }',
    "where": 'where = "json is not null"\non_error = "skip"',
    "select": 'select = "json"\non_error = "skip"',
    "python": 'transform = "corpus_same:same"',
    "rows": 'envelope = "debezium"',
}
VIEWS = {
    "by-key": 'topic = "plain{run}"\nkey = "v"\n',
    "by-time": 'topic = "plain{run}"\ntime = "v"\nwindow = "1d"\nlateness = "3652500d"\n',
    "by-where": 'topic = "plain{run}"\nwhere = "json is not null"\n',
    "of-rows": 'topic = "rows{run}"\n',
}
OLD = b'{"old":true}'
"""What a key has before its value: one on which SQL fails leaves it, one that is deleted does not."""
FORMATS = {"application/json": "json", "text/plain": "text", "application/octet-stream": "base64"}
VALUE_FIELD = indexes_of(Options(index=1, fields=(("v", "text"),)))


class How(NamedTuple):
    """How a job reads, how many records of each topic a batch has, and whether the driver writes them."""

    reader: str
    size: int
    in_driver: bool

    @property
    def config(self) -> str:
        return (
            f'[job]\nreader = "{self.reader}"\nheartbeat_ms = 200\n'
            f"max_batch_records = {len(TOPICS) * self.size}\n"
            f"small_batch_records = {100_000 if self.in_driver else 0}\n"
        )


class Verdict(NamedTuple):
    """What becomes of a value, in the words of the page."""

    read: str
    where: str
    time: str


def page() -> dict[tuple[str, str, str, str], Counter[str]]:
    """The groups of values that have each verdict: of a read, `where`, views by key and by time."""
    text, _, _ = PAGE.read_text().partition("\n## ")
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {
        (read, where, key, time): Counter(
            {group: int(count) for group, _, count in (each.rpartition(" ") for each in groups.split(", "))}
        )
        for read, where, key, time, groups in lines[2:]
    }


@dataclass
class Stage:
    """A job that reads the values, and its readers. `run`: ends the names of topics and views."""

    kafka: str
    redis: str
    query: Query
    run: str
    values: Sequence[Value]

    def produce(self) -> None:
        records = [(b"k%d" % number, value.data) for number, value in enumerate(self.values)]
        for topic in TOPICS:
            create_topic(self.kafka, topic + self.run, 1)
            before = [(key, OLD) for key, _ in records] if topic in {"where", "select"} else []
            # The longest values are just below the limit of brokers.
            produce(self.kafka, topic + self.run, [*before, *records], message_max_bytes=1_040_000)

    @property
    def config(self) -> str:
        topics = (f"[topics.{name}{self.run}]\n{options}\n" for name, options in TOPICS.items())
        views = (
            f"[views.{name}{self.run}]\n{options.format(run=self.run)}"
            f'[views.{name}{self.run}.columns]\nn = "count()"\n'
            + ("" if name == "of-rows" else 'l = "latest(v)"\n')
            for name, options in VIEWS.items()
        )
        return "".join((*topics, *views))

    def wait(self) -> None:
        """Until the topics have all values."""
        for topic in TOPICS:
            end = len(self.values) * (2 if topic in {"where", "select"} else 1)
            with closing(jobs.State(self.redis, topic + self.run)) as state:
                # Batches of one take long: each hundred records have their time.
                for reached in (*range(100, end, 100), end):
                    eventually(
                        lambda state=state, reached=reached: all(
                            mark is not None and mark.next_offset >= reached
                            for mark in state.watermarks().values()
                        )
                    )
            eventually(lambda topic=topic: self.answer(topic, 0)[0] != 503)

    def answer(self, topic: str, number: int) -> tuple[int, bytes, str]:
        """Status, body and content type of a read."""
        found = self.query.answer(f"/topics/{topic}{self.run}/keys/k{number}")
        body = base64.b64decode(found["body"]) if found.get("isBase64Encoded") else found["body"].encode()
        headers = {name.lower(): values[0] for name, values in found["multiValueHeaders"].items()}
        return found["statusCode"], body, headers["content-type"].partition(";")[0]

    def value(self, topic: str, number: int) -> bytes | None:
        """The value of a key, None where it has none."""
        status, body, _ = self.answer(topic, number)
        assert status in {200, 404}, (self.values[number].name, status, body[:200])
        return body if status == 200 else None

    def counted(self, view: str, records: int) -> tuple[dict[str, int], dict[str, Any]]:
        """The records that a view has counted, by their keys, and its state, once it has seen so many."""
        state: dict[str, Any] = {}
        counts: Counter[str] = Counter()

        def seen() -> int:
            state.update(self.query.ask(f"/views/{view}{self.run}")[1])
            counts.clear()
            if self.query.ask(f"/views/{view}{self.run}/keys")[0] == 200:
                for (key, _, _), values in self.query.windows(view + self.run).items():
                    counts[key] += int(values["n"])
            return sum(counts.values()) + int(state.get("invalid", 0)) + int(state.get("failed", 0))

        eventually_equal(seen, records)
        return dict(counts), state

    def verdicts(self) -> list[Verdict]:
        by_time, _ = self.counted("by-time", len(self.values))
        found = []
        for number, value in enumerate(self.values):
            status, body, kind = self.answer("plain", number)
            assert (status, body) == (200, value.data), value.name
            kept = self.value("where", number)
            assert kept in {None, OLD, value.data}, value.name
            where = {None: "not JSON", OLD: "Spark can't read it"}.get(kept, "JSON")
            time = "counted" if f"k{number}" in by_time else "invalid"
            found.append(Verdict(FORMATS[kind], where, time))
        return found

    def check_topics(self, verdicts: Sequence[Verdict]) -> None:
        """What `select`, a function and change events make of each value, by its verdict."""
        for number, (value, verdict) in enumerate(zip(self.values, verdicts, strict=True)):
            assert self.value("python", number) == value.data, value.name
            selected = self.value("select", number)
            if verdict.where == "JSON" and selected not in {OLD, None}:
                assert exact(selected) == exact(value.data), value.name
            elif verdict.where == "JSON":
                # A number of more digits than Spark holds beside a string of the same; null is no object.
                assert value.group in {"twice", "plain"}, value.name
            else:
                assert selected == (None if verdict.where == "not JSON" else OLD), value.name
            self.check_row(number, value.data)

    def check_row(self, number: int, value: bytes) -> None:
        status, body, _ = self.answer("rows", number)
        try:
            row = parse_event(value.decode()).row
        except ValueError:
            assert status == 422, (self.values[number].name, body[:200])
            return
        assert (status, body) == ((200, row.encode()) if row else (404, body)), self.values[number].name

    def check_finds(self, verdicts: Sequence[Verdict]) -> None:
        """A find has the values that a read shows as JSON with this text."""
        wanted = defaultdict[str, set[str]](set)
        for number, (value, verdict) in enumerate(zip(self.values, verdicts, strict=True)):
            if verdict.read != "json":
                continue
            document = parse_verbatim(value.data.decode())
            if VALUE_FIELD.entries(document)[0] and len(text := document["v"]) <= 64:
                wanted[text].add(f"k{number}")
        for text, keys in wanted.items():
            path, asked = f"/topics/plain{self.run}/find", json.dumps(text)
            status, document = self.query.ask(path, v=asked, limit="1000")
            assert status == 200, (text, document)
            assert {each["key"] for each in document["records"]} == keys, text

    def check_views(self, verdicts: Sequence[Verdict]) -> None:
        by_where, state = self.counted("by-where", sum(each.where != "not JSON" for each in verdicts))
        assert set(by_where) == {f"k{at}" for at, each in enumerate(verdicts) if each.where == "JSON"}
        assert state["failed"] == sum(each.where == "Spark can't read it" for each in verdicts)
        rows, invalid = set(), 0
        for number, value in enumerate(self.values):
            try:
                if parse_event(value.data.decode()).row is not None:
                    rows.add(f"k{number}")
            except ValueError:
                invalid += 1
        of_rows, state = self.counted("of-rows", len(rows) + invalid)
        assert (set(of_rows), state["invalid"]) == (rows, invalid)


def exact(text: bytes) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


class Through:
    """Sends values through a job, and compares all that reads them."""

    def __init__(self, kafka: str, redis: str, folder: Path, query: Query) -> None:
        self._outside = kafka, redis, query
        self._folder = folder
        (folder / "corpus_same.py").write_text("def same(batch):\n    return batch\n")

    def job(self, how: How, values: Sequence[Value]) -> tuple[list[Verdict], dict[str, Any]]:
        """Returns the verdicts, and the state of the view by key."""
        run = f"-{how.reader}-{how.size}-{'driver' if how.in_driver else 'tasks'}-{len(values)}"
        stage = Stage(*self._outside, run, values)
        stage.produce()
        kafka, redis, _ = self._outside
        with jobs.running(kafka, redis, self._folder, how.config + stage.config) as job:
            job.wait_for("keylane: ready")
            stage.wait()
            verdicts = stage.verdicts()
            stage.check_topics(verdicts)
            stage.check_finds(verdicts)
            stage.check_views(verdicts)
            _, state = stage.counted("by-key", len(values))
            assert not [line for line in job.lines if "restarts in" in line or "FAILED" in line]
        return verdicts, state


@pytest.fixture
def through(kafka: str, redis_cluster: str, tmp_path: Path, query: Query) -> Through:
    return Through(kafka, redis_cluster, tmp_path, query)


def some(every: int) -> list[Value]:
    """The first value of each group, and one of so many others."""
    groups: Counter[str] = Counter()
    found = []
    for value in corpus():
        if groups[value.group] % every == 0:
            found.append(value)
        groups[value.group] += 1
    return found


@pytest.mark.parametrize(
    "how",
    [
        How("direct", 17, in_driver=False),
        pytest.param(How("spark", 16, in_driver=True), marks=pytest.mark.long),
    ],
)
def test_values_of_each_group_have_the_verdicts_of_the_page(through: Through, how: How):
    values = some(20)
    verdicts, _ = through.job(how, values)
    known = page()
    for value, verdict in zip(values, verdicts, strict=True):
        rows = [groups for (read, where, _, time), groups in known.items() if (read, where, time) == verdict]
        assert any(value.group in groups for groups in rows), (value.name, verdict)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("in_driver", [True, False], ids=["driver", "tasks"])
@pytest.mark.parametrize("size", [1, 16, 17, 1_000])
@pytest.mark.parametrize("reader", ["direct", "spark"])
def test_every_value_has_the_verdict_of_the_page(through: Through, reader: str, size: int, in_driver: bool):
    # A batch of Spark's own reader takes long, however small it is.
    values = some(40) if size == 1 else corpus()
    verdicts, state = through.job(How(reader, size, in_driver), values)
    if len(values) < len(corpus()):
        return
    found, wanted = defaultdict[Verdict, Counter[str]](Counter), defaultdict[Verdict, Counter[str]](Counter)
    for value, verdict in zip(values, verdicts, strict=True):
        found[verdict][value.group] += 1
    for (read, where, _, time), groups in page().items():
        wanted[Verdict(read, where, time)].update(groups)
    assert found == wanted
    invalid = sum(groups.total() for (_, _, key, _), groups in page().items() if key == "invalid")
    assert state["invalid"] == invalid
