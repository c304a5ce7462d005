"""`keylane export` and `keylane import`: what is in the files, and that one reads what the other writes."""

from __future__ import annotations

import base64
import csv
import json
import os
import sys
from decimal import Decimal
from functools import partial
from itertools import count

import httpx
import pytest
from click.testing import CliRunner
from pyarrow import parquet
from tests.unit.client.api_double import ApiDouble, problem
from tests.unit.client.snapshot_answers import ENDED_AT, a_row, begun, ended, failed, lane, lines

import keylane_client
from keylane_client.cli import access, export, export_files
from keylane_client.cli.commands import keylane
from keylane_client.cli.errors import BadArgument, CommandFailed
from keylane_client.cli.import_records import record_of_line

CLIENT = keylane_client.Client


@pytest.fixture
def run(monkeypatch):
    """Run a command against what answers its requests; return what it printed."""

    def run_command(answer, *arguments: str) -> str:
        def connect(url, auth=None, *, options=None):
            return CLIENT(url, auth, options=options, transport=httpx.MockTransport(answer))

        monkeypatch.setattr(access.api, "Client", connect)
        result = CliRunner().invoke(keylane, [*arguments, "--url", "https://api.test/v1"])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.stdout

    return run_command


def exported(run, path, *rows, arguments=()) -> tuple[str, ApiDouble]:
    api = ApiDouble(lines(begun(1), *rows, lane(0), ended()))
    return run(api._answer, "export", "t", "-o", str(path), *arguments), api


ROWS = [
    a_row("a", {"n": 1, "price": 12.5, "ok": True, "more": {"x": [1]}}, 7, timestamp=5),
    a_row("b", {"n": 2.5, "name": "Zoë", "ok": None, "mixed": "x"}, 8),
    a_row("c", {"n": 3, "mixed": 4}, 9),
]


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv"])
def test_a_value_that_is_nested_as_deep_as_the_service_shows_is_exported(run, tmp_path, name):
    value: object = 1.5
    for _ in range(250):
        value = {"a": [value]}
    path = tmp_path / name
    assert exported(run, path, a_row("a", {"deep": value}, 7))[0].startswith("1 records")
    assert path.read_text().count("[") == 250


def test_json_lines_have_all_that_an_import_needs(run, tmp_path):
    path = tmp_path / "t.jsonl"
    binary = a_row("/w==", "AAE=", 10) | {"key_format": "base64", "value_format": "base64"}
    text = a_row("t", "plain\u2028", 11) | {"value_format": "text", "timestamp": None}
    printed, api = exported(
        run, path, ROWS[0], binary, text, arguments=["state=open", "--prefix", "p", "--fields", "n"]
    )
    assert printed == f"3 records\tat {ENDED_AT}\n"
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert found == [
        {"key": "a", "value": ROWS[0]["value"], "value_format": "json", "timestamp": 5, "position": "2:7"},
        {
            "key": "/w==",
            "key_format": "base64",
            "value": "AAE=",
            "value_format": "base64",
            "timestamp": 1,
            "position": "2:10",
        },
        {"key": "t", "value": "plain\u2028", "value_format": "text", "position": "2:11"},
    ]
    assert dict(api.requests[0].url.params) == {".state": "open", "prefix": "p", "fields": "n"}


def test_a_table_of_csv_has_a_column_for_each_field_of_all_records(run, tmp_path):
    path = tmp_path / "t.csv"
    exported(run, path, *ROWS, arguments=["--key", "id"])
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "n", "price", "ok", "more", "name", "mixed"]
    assert rows[0] == {
        "id": "a", "n": "1", "price": "12.5", "ok": "true", "more": '{"x": [1]}', "name": "", "mixed": ""
    }  # fmt: skip
    assert (rows[1]["name"], rows[1]["ok"], rows[2]["mixed"]) == ("Zoë", "", "4")


def test_a_table_of_parquet_has_types(run, tmp_path):
    path = tmp_path / "t.parquet"
    exported(run, path, *ROWS)
    table = parquet.read_table(path)
    assert {field.name: str(field.type) for field in table.schema} == {
        "key": "string",
        "n": "double",
        "price": "double",
        "ok": "bool",
        "more": "string",
        "name": "string",
        "mixed": "string",
    }
    assert table.column("n").to_pylist() == [1, 2.5, 3]
    assert table.column("mixed").to_pylist() == [None, "x", "4"]


def test_values_that_are_no_objects_and_large_integers_have_their_columns(run, tmp_path):
    path = tmp_path / "t.parquet"
    exported(run, path, a_row("a", 5), a_row("b", {"big": 2**70, "n": 2**40}), a_row("c", None))
    assert parquet.read_table(path).to_pylist() == [
        {"key": "a", "value": 5, "big": None, "n": None},
        {"key": "b", "value": None, "big": str(2**70), "n": 2**40},
        {"key": "c", "value": None, "big": None, "n": None},
    ]


@pytest.mark.parametrize("numbers", [(2**53 + 1, 0.5), (0.5, 1, 2**53 + 1), (1, 2**53 + 1, 0.5)])
def test_integers_that_a_double_would_change_are_text_beside_other_numbers(run, tmp_path, numbers):
    path = tmp_path / "t.parquet"
    exported(run, path, *(a_row(f"k{at}", {"n": number}) for at, number in enumerate(numbers)))
    assert parquet.read_table(path).column("n").to_pylist() == [str(number) for number in numbers]


def test_wide_and_other_integers_are_one_column(run, tmp_path):
    path = tmp_path / "t.parquet"
    exported(run, path, a_row("a", {"n": 1}), a_row("b", {"n": 2**63 - 1}), a_row("c", {"n": 2}))
    table = parquet.read_table(path)
    assert str(table.schema.field("n").type) == "int64"
    assert table.column("n").to_pylist() == [1, 2**63 - 1, 2]


def test_a_field_with_the_name_of_the_keys_column_is_refused_unless_it_is_the_key(run, tmp_path):
    path = tmp_path / "t.csv"
    with pytest.raises(BadArgument, match="--key"):
        exported(run, path, a_row("a", {"key": "other"}))
    exported(run, path, a_row("a", {"key": "a", "n": 1}))
    assert path.read_bytes() == b"key,n\r\na,1\r\n"


def test_a_table_has_a_bound_of_columns(run, tmp_path, monkeypatch):
    monkeypatch.setattr(export_files, "MOST_COLUMNS", 2)
    with pytest.raises(CommandFailed, match="--fields"):
        exported(run, tmp_path / "t.csv", a_row("a", {"x": 1, "y": 2}))


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv"])
def test_an_export_that_fails_leaves_no_file_and_keeps_the_one_that_was_there(run, tmp_path, name):
    path = tmp_path / name
    path.write_text("before", encoding="utf-8")
    api = ApiDouble(lines(begun(2), a_row("a", 1), lane(0), failed(500, "corrupt-state")))
    with pytest.raises(CommandFailed, match="corrupt-state"):
        run(api._answer, "export", "t", "-o", str(path))
    assert path.read_text(encoding="utf-8") == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_stays_what_it_is(run, tmp_path):
    path = tmp_path / "t.jsonl"
    os.mkfifo(path)
    with pytest.raises(BadArgument, match="a pipe"):
        exported(run, path, *ROWS)
    assert path.is_fifo()


def test_two_exports_into_one_file_do_not_mix(run, tmp_path, monkeypatch):
    path, write = tmp_path / "t.jsonl", export.write_records
    pending = [partial(exported, run, path, a_row("other", 1))]

    def write_later(snapshot, file, progress):
        found = write(snapshot, file, progress)
        if pending:
            pending.pop()()  # another one begins and ends
        return found

    monkeypatch.setattr(export, "write_records", write_later)
    exported(run, path, *ROWS)
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == ["a", "b", "c"]
    assert [*tmp_path.iterdir()] == [path]


def test_parquet_without_pyarrow_is_refused_before_anything_is_read(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    api = ApiDouble()
    with pytest.raises(BadArgument, match="pip install pyarrow"):
        run(api._answer, "export", "t", "-o", str(tmp_path / "t.parquet"))
    assert api.requests == []


def test_values_that_are_left_in_kafka_make_the_export_fail(run, tmp_path):
    path = tmp_path / "t.jsonl"
    left = a_row("a", None) | {"value_format": "left-in-kafka", "value_bytes": 9}
    with pytest.raises(CommandFailed, match="values of 1 records"):
        exported(run, path, left, a_row("b", 1))
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2


def test_an_export_needs_a_service_that_has_snapshots(run, tmp_path):
    api = ApiDouble(problem(501, "not-streamed"))
    with pytest.raises(CommandFailed, match="not-streamed"):
        run(api._answer, "export", "t", "-o", str(tmp_path / "t.jsonl"))


class Pushed:
    """Keeps the records that are pushed."""

    def __init__(self) -> None:
        self.records: list[dict] = []
        self._offsets = count()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        records = json.loads(request.content)["records"]
        self.records += records
        answers = [{"partition": 0, "offset": next(self._offsets), "error_code": None} for _ in records]
        return httpx.Response(200, json={"offsets": answers})


def test_an_import_writes_what_an_export_has_written(run, tmp_path):
    path = tmp_path / "t.jsonl"
    binary = a_row("/w==", "AAE=", 10) | {"key_format": "base64", "value_format": "base64"}
    text = a_row("t", "plain", 11) | {"value_format": "text", "timestamp": None}
    digits = lines(begun(1), lane(0), ended()).content.replace(
        b'{"lane"', json.dumps(a_row("d", "X")).replace('"X"', "12.50").encode() + b'\n{"lane"', 1
    )
    answer = httpx.Response(200, headers={"Content-Type": "application/x-ndjson"}, content=digits)
    run(ApiDouble(answer)._answer, "export", "t", "-o", str(tmp_path / "d.jsonl"))
    assert '"value": 12.50,' in (tmp_path / "d.jsonl").read_text(encoding="utf-8")
    exported(run, path, ROWS[0], binary, text)
    pushed = Pushed()
    assert run(pushed, "import", "u", str(path), "--no-wait") == "3 rows written, 0 skipped\n"
    run(pushed, "import", "u", str(tmp_path / "d.jsonl"), "--no-wait", "--no-timestamps")
    decoded = [tuple(base64.b64decode(each[name]) for name in ("key", "value")) for each in pushed.records]
    assert json.loads(decoded[0][1]) == ROWS[0]["value"]
    assert decoded[1:] == [(b"\xff", b"\x00\x01"), (b"t", b"plain"), (b"d", b"12.50")]
    assert [each.get("timestamp") for each in pushed.records] == [5, 1, None, None]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ({"key": {"id": 7}, "value": 1, "value_format": "json"}, "keys with types"),
        ({"key": "", "value": 1, "value_format": "json"}, "key"),
        ({"key": "a", "value": None, "value_format": "left-in-kafka"}, "left-in-kafka"),
        ({"key": "a", "value": 3, "value_format": "text"}, "value_format"),
        ({"key": "a", "value": "*", "value_format": "base64"}, "base64"),
        ({"key": "*", "key_format": "base64", "value": 1, "value_format": "json"}, "base64"),
        ({"key": "a", "value": 1, "value_format": "json", "timestamp": "now"}, "timestamp"),
        ({"id": 1}, "key"),
    ],
)
def test_a_line_that_is_no_record_says_why(run, tmp_path, line, fault):
    with pytest.raises(ValueError, match=fault):
        record_of_line(line)
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    with pytest.raises(BadArgument, match=f"line 1: .*{fault}"):
        run(Pushed(), "import", "t", str(path))
    assert run(Pushed(), "import", "t", str(path), "--on-error", "skip") == "0 rows written, 1 skipped\n"


def test_numbers_keep_their_digits_in_values():
    line = {"key": "a", "value": {"fare": Decimal("12.50")}, "value_format": "json"}
    assert record_of_line(line).value == b'{"fare": 12.50}'


HUGE = b'{"i": %b, "e": 1e99999999999999999999, "d": 0.1000000000000000055511151231257827, "l": 1e400}' % (
    b"9" * 5_000
)
HALF = b'{"t": "\\ud83d!", "\\ud83d": 1}'


def exported_values(run, path, *values: bytes) -> None:
    """Export records with these values, as the service has them."""
    rows = [a_row(f"k{number}", number) for number in range(len(values))]
    content = lines(begun(1), *rows, lane(0), ended()).content
    for number, value in enumerate(values):
        assert b'"value": %d}' % number in content
        content = content.replace(b'"value": %d}' % number, b'"value": %b}' % value)
    answer = httpx.Response(200, headers={"Content-Type": "application/x-ndjson"}, content=content)
    run(ApiDouble(answer)._answer, "export", "t", "-o", str(path))


def test_any_number_is_in_a_file_with_its_digits(run, tmp_path):
    exported_values(run, tmp_path / "t.jsonl", HUGE)
    assert HUGE.decode().replace("1e400", "1E+400") in (tmp_path / "t.jsonl").read_text(encoding="utf-8")
    exported_values(run, tmp_path / "t.csv", HUGE, b'{"d": 2}')
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        huge, two = csv.DictReader(file)
    assert huge == {
        "key": "k0",
        "i": "9" * 5_000,
        "e": "1e99999999999999999999",
        "d": "0.1000000000000000055511151231257827",
        "l": "1E+400",
    }
    assert two["d"] == "2"
    exported_values(run, tmp_path / "t.parquet", HUGE, b'{"d": 2}')
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == [
        {"key": "k0", "i": "9" * 5_000, "e": "1e99999999999999999999", "d": 0.1, "l": "1E+400"},
        {"key": "k1", "i": None, "e": None, "d": 2.0, "l": None},
    ]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_half_of_a_surrogate_pair_is_an_escape_in_tables(run, tmp_path, name):
    path = tmp_path / name
    exported_values(run, path, HALF)
    if name == "t.parquet":
        assert parquet.read_table(path).to_pylist() == [{"key": "k0", "t": "\\ud83d!", "\\ud83d": 1}]
    else:
        assert path.read_bytes() == b"key,t,\\ud83d\r\nk0,\\ud83d!,1\r\n"
