"""`keylane load`: rows of files, batches, errors, and going on after a break."""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
from decimal import Decimal
from itertools import count
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from keylane_client import Client, Position, PositionNotReached, UnknownTopic, Written
from keylane_client.cli import load as loading
from keylane_client.cli import load_wait
from keylane_client.cli.commands import keylane
from keylane_client.cli.errors import BadArgument, CommandFailed
from keylane_client.cli.load_rows import Row, read_csv, read_json_lines, read_parquet, render_value
from keylane_client.cli.load_state import LoadIdentity, LoadState


class Topics:
    """Keeps what is pushed; `refusals`: a result for each record, by the push that it came with."""

    def __init__(self, **refusals) -> None:
        self.pushes: list[list[str]] = []
        self._refusals = {int(name[1:]): result for name, result in refusals.items()}
        self._offsets = count()

    def loader(self, *, skip_errors: bool = False):
        self.reported: list[str] = []
        client = Client("http://api.test", transport=httpx.MockTransport(self._answer))
        return loading.RowLoader(
            client.topic("t"), loading.keyed_by("id"), skip_errors=skip_errors, report=self.reported.append
        )

    def _answer(self, request: httpx.Request) -> httpx.Response:
        records = json.loads(request.content)["records"]
        keys = [base64.b64decode(record["key"]).decode() for record in records]
        self.pushes.append(keys)
        refusal = self._refusals.get(len(self.pushes), {})
        if isinstance(refusal, httpx.Response):
            return refusal
        offsets = [
            refusal.get(key) or {"partition": 0, "offset": next(self._offsets), "error_code": None}
            for key in keys
        ]
        return httpx.Response(200, json={"offsets": offsets})


LATER = {"error_code": 50003, "error": "later", "retriable": True}
SUPERSEDED = {
    "error_code": 50002,
    "error": "a newer one",
    "superseded": True,
    "retriable": False,
}
NEVER = {"error_code": 50002, "error": "never", "retriable": False}


def test_a_row_that_is_nested_too_deeply_is_skipped():
    topics, nested = Topics(), []
    for _ in range(sys.getrecursionlimit()):
        nested = [nested]
    loader = topics.loader(skip_errors=True)
    loader.write([Row("line 1", {"id": "a", "deep": nested}), Row("line 2", {"id": "b"})])
    assert topics.pushes == [["b"]]
    assert topics.reported == ["line 1: it is nested too deeply; skipped"]


@pytest.mark.parametrize("is_pipe", [False, True])
def test_a_load_that_is_stopped_says_how_many_rows_are_written_and_where_it_goes_on(
    tmp_path, monkeypatch, is_pipe
):
    lines = "id\n" + "".join(f"{number}\n" for number in range(7))
    path = tmp_path / "rows.csv"
    written = []

    def push(_, records):
        if len(written) == 4:
            raise KeyboardInterrupt
        written.extend(records)
        return [Written("t", record.key, Position(0, 1)) for record in records]

    monkeypatch.setattr("keylane_client.Topic.push", push)
    if is_pipe:
        os.mkfifo(path)
        threading.Thread(target=path.write_text, args=(lines,), daemon=True).start()
    else:
        path.write_text(lines, encoding="utf-8")
    monkeypatch.setenv("KEYLANE_URL", "http://127.0.0.1:1")
    arguments = ["load", str(path), "--topic", "t", "--key", "id", "--batch", "2"]
    result = CliRunner().invoke(keylane, arguments)
    assert result.exit_code == 130
    goes_on = "begins again: of a pipe nothing is kept" if is_pipe else "goes on from here"
    assert f"Stopped: at least 4 rows are written. The same command {goes_on}." in result.output


HOSTILE = "\x1b]0;T\x07\u202e"


def test_names_of_files_and_fields_are_shown_with_escapes_and_are_no_markup(tmp_path, monkeypatch):
    """A terminal obeys what it prints, and rich what is in brackets."""
    written: list[object] = []

    def push(_, records):
        written.extend(records)
        return [Written("t", record.key, Position(0, 1)) for record in records]

    monkeypatch.setattr("keylane_client.Topic.push", push)
    monkeypatch.setenv("KEYLANE_URL", "http://127.0.0.1:1")
    path = tmp_path / f"[red]{HOSTILE}.jsonl"
    path.write_text(json.dumps({HOSTILE: 1}) + '\n{"id": "b"}\n', encoding="utf-8")
    arguments = ["load", str(path), "--topic", "t", "--key", "id", "--on-error", "skip", "--no-wait"]
    result = CliRunner().invoke(keylane, arguments, catch_exceptions=False)
    assert len(written) == 1
    assert r"it has \x1b]0;T\x07\u202e; skipped" in result.output
    assert not set(HOSTILE) & set(result.output) - set("]0;T")


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)


def rows_of(tmp_path, text: str, read=read_csv):
    path = tmp_path / "rows"
    path.write_text(text, encoding="utf-8")
    return list(read(lambda: path.open(encoding="utf-8-sig", newline="")))


def test_csv_rows_are_strings_under_their_header_and_broken_ones_say_where(tmp_path):
    rows = rows_of(tmp_path, '\ufeffid,name\n1,"two\nlines"\n2,\n3\n4,a,b\n')
    assert [row.values for row in rows[:2]] == [{"id": "1", "name": "two\nlines"}, {"id": "2"}]
    assert [(row.location, row.fault) for row in rows[2:]] == [
        ("line 5", "it has fewer than the header's 2 fields"),
        ("line 6", "it has more than the header's 2 fields"),
    ]


def test_json_lines_are_objects_and_broken_ones_say_where(tmp_path):
    rows = rows_of(tmp_path, '{"id": 1}\n\n[1]\n{"id"\n', read_json_lines)
    assert rows[0].values == {"id": 1}
    assert [row.location for row in rows[1:]] == ["line 3", "line 4"]
    assert all(row.fault for row in rows[1:])


def test_parquet_rows_have_their_types(tmp_path):
    path = tmp_path / "rows.parquet"
    table = pa.table(
        {"id": ["a"], "n": [1], "at": [pa.scalar(0, pa.timestamp("ms"))], "d": [Decimal("1.50")]}
    )
    parquet.write_table(table, path)
    [row] = read_parquet(path)
    assert json.loads(render_value(row.values)) == {
        "id": "a",
        "n": 1,
        "at": "1970-01-01T00:00:00",
        "d": "1.50",
    }
    path.write_bytes(b"no")
    with pytest.raises(BadArgument, match="is not a Parquet file"):
        list(read_parquet(path))


def test_a_wrong_row_stops_a_load_and_names_its_line(tmp_path):
    rows = rows_of(tmp_path, "id\n1\n\n2,3\n")
    topics = Topics()
    with pytest.raises(BadArgument, match=r"line 4: .* more than"):
        topics.loader().write(rows)
    assert topics.pushes == []


def test_wrong_rows_are_skipped_and_reported_if_asked(tmp_path):
    rows = rows_of(tmp_path, "id,a\n1,x\n,y\n2,z,z\n3,x\n")
    topics = Topics(_1={"3": NEVER})
    loader = topics.loader(skip_errors=True)
    loader.write(rows)
    assert topics.pushes == [["1", "3"]]
    assert (loader.counts.written, loader.counts.skipped) == (1, 3)
    assert [line.partition(":")[0] for line in topics.reported] == ["line 3", "line 4", "line 5"]


def test_rows_that_are_large_together_are_written_by_several_requests(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "REQUEST_BYTES", 2_000)
    topics = Topics()
    lines = "".join(f"{key},{'x' * size}\n" for key, size in (("a", 500), ("b", 500), ("c", 1_000), ("d", 1)))
    topics.loader().write(rows_of(tmp_path, f"id,v\n{lines}"))
    assert topics.pushes == [["a", "b"], ["c", "d"]]


def test_a_row_that_no_request_takes_is_a_wrong_one(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "REQUEST_BYTES", 2_000)
    rows = rows_of(tmp_path, f"id,v\na,1\nb,{'x' * 3_000}\nc,1\n")
    topics = Topics()
    loader = topics.loader(skip_errors=True)
    loader.write(rows)
    assert topics.pushes == [["a", "c"]]
    assert [line.partition(": it has ")[0] for line in topics.reported] == ["line 3"]
    with pytest.raises(BadArgument, match="line 3: it has 4"):
        Topics().loader().write(rows)


def test_a_row_whose_key_has_a_newer_record_is_reported_and_the_load_goes_on(tmp_path):
    rows = rows_of(tmp_path, "id,a\n1,old\n1,new\n2,x\n")
    topics = Topics(_1={"2": SUPERSEDED})
    loader = topics.loader()
    loader.write(rows)
    assert (loader.counts.written, loader.counts.skipped) == (2, 1)
    assert topics.reported == ["line 4: a newer one; skipped"]
    assert topics.pushes == [["1", "1", "2"]]


def test_records_are_sent_again_from_the_first_that_may_succeed_later(tmp_path):
    rows = rows_of(tmp_path, "id\n1\n2\n3\n")
    topics = Topics(_1={"2": LATER})
    loader = topics.loader()
    loader.write(rows)
    assert topics.pushes == [["1", "2", "3"], ["2", "3"]]
    assert loader.counts.written == 3


def test_a_batch_is_sent_again_while_the_service_is_busy(tmp_path):
    busy = {"type": "urn:keylane:problem:rate-limited", "status": 429}
    topics = Topics(_1=httpx.Response(429, json=busy, headers={"Retry-After": "1"}))
    topics.loader().write(rows_of(tmp_path, "id\n1\n"))
    assert topics.pushes == [["1"], ["1"]]


def test_a_load_that_broke_off_goes_on_behind_the_last_batch(tmp_path):
    rows = rows_of(tmp_path, "id\n" + "".join(f"{number}\n" for number in range(6)))
    identity = LoadIdentity.of(tmp_path / "rows", "u", "t", "id")
    state = LoadState(tmp_path / "rows", identity)
    topics = Topics(_3={"4": NEVER})
    with pytest.raises(CommandFailed, match="line 6"):
        loading.run_load(iter(rows), topics.loader(), state, 2)
    assert state.load_rows() == 4
    again = topics.loader()
    again.counts.resumed = state.load_rows()
    loading.run_load(iter(rows), again, state, 2)
    assert topics.pushes == [["0", "1"], ["2", "3"], ["4", "5"], ["4", "5"]]
    assert state.load_rows() == 0


def test_of_a_pipe_nothing_is_kept(tmp_path):
    reading, writing = os.pipe()
    os.write(writing, b'{"id": "a"}\n')
    os.close(writing)
    path, topics = Path(f"/dev/fd/{reading}"), Topics()
    state = LoadState(path, LoadIdentity.of(path, "u", "t", "id"))
    assert state.load_rows() == 0
    loading.run_load(read_json_lines(path.open), topics.loader(), state, 1)
    assert topics.pushes == [["a"]]
    os.close(reading)


def test_where_no_state_can_be_written_the_load_says_how_far_it_is(tmp_path, monkeypatch):
    path = tmp_path / "rows"
    path.touch()
    state = LoadState(path, LoadIdentity.of(path, "u", "t", "id"))
    (tmp_path / "rows.keylane-load.json.new").mkdir()
    with pytest.raises(
        CommandFailed, match=r"7 rows are done, but rows\.keylane-load\.json can't be written: Is"
    ):
        state.save_rows(7)


def test_a_state_of_another_file_or_load_is_refused(tmp_path):
    path = tmp_path / "rows"
    path.write_text("id\n1\n")
    LoadState(path, LoadIdentity.of(path, "u", "t", "id")).save_rows(1)
    with pytest.raises(BadArgument, match="--restart"):
        LoadState(path, LoadIdentity.of(path, "u", "other", "id")).load_rows()
    path.write_text("id\n1\n2\n")
    with pytest.raises(BadArgument, match="--restart"):
        LoadState(path, LoadIdentity.of(path, "u", "t", "id")).load_rows()


class Reads:
    """A topic whose reads are answered in turn: an error is raised. Each read takes a second."""

    def __init__(self, *answers: Exception | None) -> None:
        self._answers = list(answers)
        self.read: list[tuple[str | bytes, Position]] = []
        self.now_s = 0.0

    def get(self, key, *, min_position, wait_s):
        assert 0 <= wait_s <= 20
        self.read.append((key, min_position))
        self.now_s += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is not None:
            raise answer

    def clock(self) -> float:
        return self.now_s


BEHIND = PositionNotReached(412, {"type": "urn:keylane:problem:position-not-reached"}, {})
LAST = [("a", Position(0, 7)), ("b", Position(3, 1))]


def test_a_load_waits_for_the_last_record_of_each_partition(tmp_path):
    loader = Topics().loader()
    loader.write(rows_of(tmp_path, "id\n1\n2\n3\n"))
    assert loader.last == {0: ("3", Position(0, 2))}
    topic = Reads(BEHIND, BEHIND, None)
    assert load_wait.wait_readable(topic, LAST, 2, topic.clock) is None
    assert topic.read == [LAST[0]] * 3 + [LAST[1]]


def test_a_wait_that_takes_too_long_says_what_is_written_and_to_look_at_the_job():
    topic = Reads(BEHIND)
    with pytest.raises(
        load_wait.NotReadableYet, match=r"2 rows are written.*60 s.*\(0:7\).*--no-wait"
    ) as caught:
        load_wait.wait_readable(topic, LAST, 2, topic.clock)
    assert caught.value.exit_code == 6
    assert topic.now_s == load_wait.WAIT_S


def test_a_topic_without_a_state_is_not_waited_for():
    topic = Reads(UnknownTopic(404, {"type": "urn:keylane:problem:unknown-topic", "detail": "none"}, {}))
    assert load_wait.wait_readable(topic, LAST, 2, topic.clock) == "404 unknown-topic: none"
    assert len(topic.read) == 1


def test_a_key_that_is_no_column_is_told_with_the_columns_that_there_are(tmp_path):
    rows = rows_of(tmp_path, "order_id,city\n1,Bern\n")
    with pytest.raises(BadArgument, match="it has no 'id', which is to be the key: it has order_id, city"):
        Topics().loader().write(rows)


def test_json_lines_keep_the_digits_of_their_numbers(tmp_path):
    numbers = f'"n": 0.1000000000000000055511151231257827, "i": {"9" * 5_000}, "e": 1e99999999999999999999'
    line = f'{{"id": "a", {numbers}}}'
    (row,) = rows_of(tmp_path, line + "\n", read_json_lines)
    assert render_value(row.values).decode() == line


def test_a_cell_of_csv_may_be_as_long_as_a_value(tmp_path):
    cell = "one line\n" * 30_000
    assert [row.values for row in rows_of(tmp_path, f'id,t\n1,"{cell}"\n2,b\n')] == [
        {"id": "1", "t": cell},
        {"id": "2", "t": "b"},
    ]


def keys_of(rows) -> list[object]:
    return [loading.keyed_by("id")(row.values).key for row in rows]


def test_a_key_that_is_no_text_is_json_as_typed_keys_are(tmp_path):
    keys = ["true", '{"region": "eu", "number": 7}', "1.10", "7", "[0, [1, 2]]"]
    lines = "".join(f'{{"id": {key}}}\n' for key in keys)
    assert keys_of(rows_of(tmp_path, lines, read_json_lines)) == [key.replace(" ", "") for key in keys]


@pytest.mark.parametrize(
    ("header", "fault"),
    [("id,a,a", "two columns 'a'"), ('id,"a"b', "can't be read"), ('id,"a', "can't be read")],
)
def test_a_header_that_would_lose_a_column_or_is_broken_ends_the_load(tmp_path, header, fault):
    with pytest.raises(BadArgument, match=fault):
        rows_of(tmp_path, f"{header}\n1,2,3\n")


def test_columns_without_a_name_may_be_many(tmp_path):
    assert rows_of(tmp_path, "id,,\n1,,\n")[0].values == {"id": "1"}


def parquet_rows(tmp_path, **columns: pa.Array):
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table(columns), path)
    return list(read_parquet(path))


def test_binary_of_parquet_is_a_key_as_it_is_and_base64_in_values(tmp_path):
    nested = pa.array([{"b": [b"x"]}])
    rows = parquet_rows(tmp_path, id=pa.array([b"\xffk"]), v=pa.array([b"abc"]), n=nested)
    assert keys_of(rows) == [b"\xffk"]
    assert json.loads(render_value(rows[0].values)) == {"id": "/2s=", "v": "YWJj", "n": {"b": ["eA=="]}}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([-1], pa.timestamp("ns")), "1969-12-31T23:59:59.999999999"),
        (pa.array([1000], pa.timestamp("ns")), "1970-01-01T00:00:00.000001"),
        (pa.array([1_500], pa.timestamp("ns", "Europe/Berlin")), "1970-01-01T01:00:00.000001500+01:00"),
        (pa.array([123_456_789], pa.time64("ns")), "00:00:00.123456789"),
        (pa.array([Decimal("1E-7")], pa.decimal128(38, 10)), "0.0000001000"),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())), {"k": 1}),
        (pa.array([[]], pa.map_(pa.string(), pa.int32())), {}),
        (pa.array([[(7, b"x")]], pa.map_(pa.int64(), pa.binary())), {"7": "eA=="}),
        (pa.array(["a"]).dictionary_encode(), "a"),
        (pa.array([bytes(15) + b"\x07"], pa.uuid()), "00000000-0000-0000-0000-000000000007"),
        (pa.array([[None, 1]], pa.large_list(pa.int8())), [None, 1]),
    ],
)
def test_values_of_parquet_lose_nothing(tmp_path, values, expected):
    [row] = parquet_rows(tmp_path, v=values)
    assert json.loads(render_value(row.values)) == {"v": expected}


def test_a_time_that_python_lacks_is_a_fault_of_its_row_alone(tmp_path):
    rows = parquet_rows(tmp_path, v=pa.array([0, 2**62], pa.timestamp("us")))
    assert rows[0].values == {"v": "1970-01-01T00:00:00"}
    assert rows[1].fault.startswith("its 'v' can't be read: ")
