"""`keylane transform` over a real topic: records before and after, as people and as programs read them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.servers.own import create_topic, produce

from keylane_client.cli.commands import keylane

TOPIC = "transform-command"


@pytest.fixture(scope="module")
def brokers(kafka) -> str:
    """A Kafka with a topic of four records, of which one is a tombstone and one has no key."""
    create_topic(kafka, TOPIC, 1)
    records = [("a", '{"n":"1"}'), ("b", None), (None, "x"), ("c", '{"n":"x"}'), ("d", '{"n":"-4"}')]
    produce(kafka, TOPIC, records)
    return kafka


def run(brokers: str, folder, table: str, *options: str):
    (folder / "keylane.toml").write_text(f"[topics.{TOPIC}]\n{table}\n")
    config = ["--config", str(folder / "keylane.toml"), "--kafka", brokers]
    return CliRunner().invoke(keylane, ["transform", TOPIC, *config, *options])


def test_sql_s_results_are_shown_and_a_record_that_fails_ends_it_with_1(brokers, tmp_path):
    number = "cast(variant_get(json, '$.n', 'string') as int)"
    found = run(brokers, tmp_path, f'where = "{number} > 0"\nselect = "{number} as n"')
    assert found.stdout.splitlines() == [
        "set      0:0  a",
        '  before  {"n":"1"}',
        '  after   {"n":1}',
        "failed   0:3  c  its SQL fails on it",
        '  before  {"n":"x"}',
        "deleted  0:4  d",
        '  before  {"n":"-4"}',
        "3 records: 1 set, 1 failed, 1 deleted",
    ]
    assert found.exit_code == 1


def test_a_function_s_results_are_lines_of_json(brokers, tmp_path):
    (tmp_path / "command_functions.py").write_text("def as_it_is(batch): return batch\n")
    table = 'transform = "command_functions:as_it_is"'
    found = run(brokers, tmp_path, table, "--json", "--sample", "2")
    records = [json.loads(line) for line in found.stdout.splitlines()]
    value = '{"n":"1"}'
    first = {"position": "0:0", "key": "a", "result": "same", "before": value, "after": value, "why": ""}
    assert records[0] == first
    assert [each["position"] for each in records] == ["0:0", "0:3"]
    assert found.exit_code == 0


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("", "has no where, select or transform"),
        ('transform = "absent_functions:f"', "there is no module 'absent_functions'"),
        ('where = "absent = 1"', "where: Spark can't compute it: [UNRESOLVED_COLUMN"),
    ],
)
def test_what_can_t_be_shown_is_an_error_in_one_sentence(brokers, tmp_path, table, why):
    found = run(brokers, tmp_path, table)
    assert found.exit_code != 0
    assert why in f"{found.exception} {found.output}"


def test_check_names_the_sql_that_spark_can_t_compute(tmp_path):
    path = tmp_path / "keylane.toml"
    path.write_text("""[topics.a]
select = "key, nowhere(value) as v"
[topics.b]
select = "key, upper(value) as v"
[views.v]
topic = "b"
where = "absent = 1"
columns = { n = "count()" }
[views.w]
topic = "b"
where = "key is not null"
columns = { n = "count()" }
""")
    found = CliRunner().invoke(keylane, ["check", "--config", str(path), "--json"])
    faults = [json.loads(line) for line in found.stdout.splitlines()]
    assert [(each["kind"], each["where"].rpartition(":")[2]) for each in faults] == [
        ("wrong", "2"),
        ("wrong", "7"),
    ]
    assert faults[0]["what"].startswith(
        "topics.a.select: Spark can't compute it: [UNRESOLVED_ROUTINE] Cannot resolve routine `nowhere`"
    )
    assert faults[1]["what"].startswith("views.v.where: Spark can't compute it: [UNRESOLVED_COLUMN")
    assert found.exit_code == 1
