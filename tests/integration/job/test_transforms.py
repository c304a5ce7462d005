"""One job over topics with `where`, `select` and functions, between real servers, by each way of rows."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import create_topic, eventually, produce
from tests.support import jobs

from keylane.model.records import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.jobs import RunningJob, State

NUMBERS = itertools.count()
PARTITIONS = 2
BAD_OFFSET = 30
"""Of partition 0 of the topics with records on which a transform fails."""
ACTIVE = "variant_get(json, '$.status', 'string') = 'active'"
WITHOUT_NAME = "map_filter(cast(json as map<string, variant>), (name, _) -> name <> 'name')"
TABLES = {
    "plain": "",
    "active": f"""where = "{ACTIVE}"\nindex = true\nhistory_count = 100""",
    "names": '''select = "upper(variant_get(json, '$.name', 'string')) as name, offset, null as none"''',
    "both": f"""where = "{ACTIVE}"\nselect = "{WITHOUT_NAME}" """,
    "rows": f'''envelope = "debezium"\nwhere = "{ACTIVE}"''',
    "row_names": """envelope = "debezium"\nselect = "variant_get(json, '$.name', 'string') as name" """,
    "upper": 'transform = "record_functions:upper"\ntransform_version = "1"\nheaders = true',
    "some": 'transform = "record_functions:only_active"\nenvelope = "debezium"',
    "stops": 'transform = "record_functions:refuse_bad"',
    "skips": """where = "cast(variant_get(json, '$.bad', 'string') as int) is null"\non_error = "skip" """,
    "keeps": 'transform = "record_functions:refuse_bad"\non_error = "keep"',
    "no_sql": 'where = "no_such_column = 1"',
    "no_module": 'transform = "no_such_module:anything"',
    "sums": 'select = "sum(offset) as s"',
    "no_path": """where = "variant_get(json, 'status', 'string') = 'active'"\non_error = "skip" """,
    "no_pattern": """select = "regexp_like(value, '(') as v"\non_error = "keep" """,
}
MODULE = """
import json
import pyarrow as pa
import pyarrow.compute as pc

def upper(batch):
    return batch.set_column(1, "value", pc.utf8_upper(batch.column("value").cast(pa.string())))

def only_active(batch):
    wanted = [json.loads(value)["status"] == "active" for value in batch.column("value").to_pylist()]
    return batch.filter(pa.array(wanted, pa.bool_()))

def refuse_bad(batch):
    if pc.any(pc.match_substring(batch.column("value").cast(pa.string()), '"bad"')).as_py():
        raise ValueError("a bad record")
    return upper(batch)
"""


@dataclass(frozen=True, slots=True)
class Written:
    """A record as it was produced."""

    partition: int
    offset: int
    key: bytes
    row: dict[str, Any] | None


@dataclass(slots=True)
class Transformed:
    """A job, its topics' names and logs by kind, and their states."""

    job: RunningJob
    names: dict[str, str]
    logs: dict[str, list[Written]]
    states: dict[str, State]

    def values(self, kind: str) -> dict[bytes, bytes | None]:
        """What a reader gets of each key that the log has, once it has waited for the key's last record."""
        reader = self.states[kind].reader(layout_ttl_s=0, timeout_ms=5000)
        try:
            return {
                each.key: reader.value(
                    each.key, min_position=Position(each.partition, each.offset), position_ms=60_000
                )
                for each in self.lasts(kind)
            }
        finally:
            reader.close()

    def lasts(self, kind: str, among: Callable[[Written], bool] = lambda _: True) -> list[Written]:
        return list({each.key: each for each in self.logs[kind] if among(each)}.values())

    def line(self, kind: str, words: str) -> str:
        return self.job.wait_for(words.replace("TOPIC", repr(self.names[kind])))


@pytest.fixture(scope="module", params=["direct", pytest.param("spark", marks=pytest.mark.long)])
def transformed(request, kafka, redis_cluster, tmp_path_factory) -> Iterator[Transformed]:
    folder: Path = tmp_path_factory.mktemp("transforms")
    names = {kind: f"transforms-{kind}-{next(NUMBERS)}" for kind in TABLES}
    logs = {}
    for kind, name in names.items():
        create_topic(kafka, name, PARTITIONS)
        logs[kind] = write(kafka, name, kind)
    tables = "".join(f"[topics.{names[kind]}]\n{text}\n" for kind, text in TABLES.items())
    (folder / "record_functions.py").write_text(MODULE)
    # What the topics have at the start is written by tasks, and what comes later by the driver.
    config = (
        f'[job]\nreader = "{request.param}"\nsmall_batch_records = 100\nheartbeat_ms = 100\n'
        f'[spark]\n"spark.sql.execution.arrow.maxRecordsPerBatch" = 50\n{tables}'
    )
    states = {kind: jobs.State(redis_cluster, name) for kind, name in names.items()}
    with jobs.running(kafka, redis_cluster, folder, config) as job:
        job.wait_for("keylane: ready")
        yield Transformed(job, names, logs, states)
    for state in states.values():
        state.close()


def write(kafka: str, topic: str, kind: str) -> list[Written]:
    """Rows of 40 keys, plain or as change events; the kinds that fail have a bad one."""
    source, is_event = random.Random(kind), "row" in kind or kind == "some"
    rows: list[tuple[bytes, dict[str, Any] | None, int]] = []
    for each in range(600):
        status = source.choice(["active", "gone"])
        row = {"id": each, "name": f"name {each}", "status": status}
        rows.append((b"key-%d" % source.randrange(40), None if source.random() < 0.1 else row, -1))
        if each == 300 and kind in {"stops", "skips", "keeps"}:
            rows += [(b"bad-key", {"name": "before"}, 0), (b"bad-key", {"name": "x", "bad": "bad"}, 0)]
    found = produce(
        kafka,
        topic,
        (
            (key, None if row is None else json.dumps(event(row) if is_event else row), partition)
            for key, row, partition in rows
        ),
    )
    log = [
        Written(each.partition(), each.offset(), key, row)
        for (key, row, _), each in zip(rows, found, strict=True)
    ]
    return sorted(log, key=lambda each: (each.partition, each.offset))


def event(row: dict[str, Any]) -> dict[str, Any]:
    return {"before": None, "after": row, "op": "u", "source": {"name": "upstream"}}


def as_json(values: dict[bytes, bytes | None]) -> dict[bytes, Any]:
    return {key: None if value is None else json.loads(value) for key, value in values.items()}


def is_active(row: dict[str, Any] | None) -> bool:
    return row is not None and row["status"] == "active"


def test_a_topic_without_a_transform_has_all_records(transformed):
    assert as_json(transformed.values("plain")) == {each.key: each.row for each in transformed.lasts("plain")}


def test_a_record_that_does_not_match_deletes_its_key(transformed):
    expected = {each.key: each.row if is_active(each.row) else None for each in transformed.lasts("active")}
    assert None in expected.values()
    assert as_json(transformed.values("active")) == expected


def test_select_stores_an_object_of_its_columns(transformed):
    assert as_json(transformed.values("names")) == {
        each.key: each.row and {"name": each.row["name"].upper(), "offset": each.offset, "none": None}
        for each in transformed.lasts("names")
    }


def test_select_stores_what_its_only_expression_gives(transformed):
    assert as_json(transformed.values("both")) == {
        each.key: {"id": each.row["id"], "status": "active"} if each.row and is_active(each.row) else None
        for each in transformed.lasts("both")
    }


def test_of_change_events_where_sees_the_row_and_the_event_stays_whole(transformed):
    assert as_json(transformed.values("rows")) == {
        each.key: event(each.row) if each.row and is_active(each.row) else None
        for each in transformed.lasts("rows")
    }
    layout = transformed.states["rows"].layout
    assert layout is not None
    assert layout.options.envelope == "debezium"


def test_of_change_events_select_and_functions_store_rows(transformed):
    assert as_json(transformed.values("row_names")) == {
        each.key: each.row and {"name": each.row["name"]} for each in transformed.lasts("row_names")
    }
    assert as_json(transformed.values("some")) == {
        each.key: each.row if is_active(each.row) else None for each in transformed.lasts("some")
    }
    layout = transformed.states["some"].layout
    assert layout is not None
    assert layout.options.envelope == "none"


def test_a_function_from_beside_the_file_makes_the_values(transformed):
    assert transformed.values("upper") == {
        each.key: json.dumps(each.row).upper().encode() if each.row else None
        for each in transformed.lasts("upper")
    }


def test_a_partition_stops_at_a_bad_record_and_the_other_one_goes_on(transformed):
    bad = next(each for each in transformed.logs["stops"] if each.row and "bad" in each.row)
    line = transformed.line("stops", "partition 0 of topic TOPIC STOPS at offset")
    assert f"at offset {bad.offset}, on which its transform fails: ValueError: a bad record" in line
    state = transformed.states["stops"]
    ends = [
        max(e.offset for e in transformed.logs["stops"] if e.partition == p) + 1 for p in range(PARTITIONS)
    ]
    assert reached(state, 1, ends[1])
    assert reached(state, 0, bad.offset)
    watermark = state.watermarks()[0, 0]
    assert watermark is not None
    assert (watermark.next_offset, watermark.complete_as_of_ms) == (bad.offset, 0)
    assert values_of_partition(state, transformed.lasts("stops", lambda e: e.partition == 1)) == {
        each.key: each.row and json.dumps(each.row).upper().encode()
        for each in transformed.lasts("stops", lambda e: e.partition == 1)
    }
    before = transformed.lasts("stops", lambda e: e.partition == 0 and e.offset < bad.offset)
    assert values_of_partition(state, before) == {
        each.key: each.row and json.dumps(each.row).upper().encode() for each in before
    }


def test_a_bad_record_is_skipped_or_kept_and_the_log_says_where_it_is(transformed):
    for kind in ("skips", "keeps"):
        bad = next(each for each in transformed.logs[kind] if each.row and "bad" in each.row)
        transformed.line(kind, f"topic TOPIC: its transform fails on 0:{bad.offset}")
    skipped, kept = transformed.values("skips"), transformed.values("keeps")
    assert as_json(skipped) == {
        each.key: each.row for each in transformed.lasts("skips", lambda e: not e.row or "bad" not in e.row)
    }
    assert kept == {
        each.key: json.dumps(each.row).upper().encode() if each.row else None
        for each in transformed.lasts("keeps")
    } | {b"bad-key": b'{"name": "x", "bad": "bad"}'}


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("no_sql", "where: Spark can't compute it: [UNRESOLVED_COLUMN"),
        ("sums", "select: Spark can't compute it: [INVALID_WHERE_CONDITION"),
        ("no_module", "transform: there is no module 'no_such_module'"),
        ("no_path", "where: Spark can't compute it: [INVALID_VARIANT_GET_PATH]"),
        (
            "no_pattern",
            "select: Spark can't compute it: java.util.regex.PatternSyntaxException: Unclosed group",
        ),
    ],
)
def test_what_can_t_run_stops_its_topic_alone(transformed, kind, why):
    assert why in transformed.line(kind, "topic TOPIC STOPS: ")
    state = transformed.states[kind]
    assert all(each is not None and each.next_offset == 0 for each in state.watermarks().values())


def test_new_records_reach_their_topics_while_others_are_stopped(transformed, kafka):
    row = {"id": 7, "name": "new", "status": "active"}
    for name in transformed.names.values():
        produce(kafka, name, [(b"new", json.dumps(row))])
    text = json.dumps(row)
    after = {"plain": text, "active": text, "both": '{"id":7,"status":"active"}', "upper": text.upper()}
    for kind, value in after.items():
        state = transformed.states[kind]
        eventually(lambda state=state, value=value: state.holds({b"new": value.encode()}))


def reached(state: State, partition: int, offset: int) -> bool:
    def is_there() -> bool:
        watermark = state.watermarks()[partition, 0]
        return watermark is not None and watermark.next_offset >= offset

    eventually(is_there)
    return True


def values_of_partition(state: State, lasts: list[Written]) -> dict[bytes, bytes | None]:
    reader = state.reader(layout_ttl_s=0)
    try:
        return {each.key: reader.value(each.key, partial=True) for each in lasts}
    finally:
        reader.close()
