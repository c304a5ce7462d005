"""A view's table in keylane.toml: what it means, and how an error is reported."""

from __future__ import annotations

import json

import pytest

from keylane.errors import BadConfig
from keylane.state.windows import Column, Definition
from keylane_spark.config.config_file import load

BASE = "[topics.t]\n[views.v]\ntopic = 't'\n"
COLUMNS = "[views.v.columns]\nn = 'count()'\n"


def config_of(tmp_path, text: str):
    (path := tmp_path / "keylane.toml").write_text(text)
    return load(path)


def view_of(tmp_path, text: str):
    return config_of(tmp_path, text).views["v"]


def test_a_view_needs_a_topic_and_a_column(tmp_path):
    assert view_of(tmp_path, BASE + COLUMNS).definition == Definition("t", (Column("n", "count"),))


def test_a_table_becomes_a_definition(tmp_path):
    text = (
        "key = 'a.b'\ntime = 'at'\nwindow = '1h'\nevery = '10m'\nlateness = '5s'\nttl = '30d'\n"
        "where = 'offset > 1'\n"
        "[views.v.columns]\nc = 'count(x)'\ns = 'sum(x.y)'\nl = 'latest( z )'\n"
        "b = 'latest(z, by v.w)'\nw = 'latest()'\n"
    )
    assert view_of(tmp_path, BASE + text).definition == Definition(
        "t",
        (
            Column("c", "count", "x"),
            Column("s", "sum", "x.y"),
            Column("l", "latest", "z"),
            Column("b", "latest", "z", "v.w"),
            Column("w", "latest"),
        ),
        key="a.b",
        time="at",
        size_ms=3_600_000,
        every_ms=600_000,
        lateness_ms=5_000,
        ttl_ms=30 * 86_400_000,
        where="offset > 1",
    )
    assert view_of(tmp_path, BASE + "session = '30m'\n" + COLUMNS).definition.window == "session"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (BASE, ":2: views.v.columns: Field required"),
        (BASE + "[views.v.columns]\n", "views.v.columns: "),
        (
            BASE + "[views.v.columns]\nn = 'median(x)'\n",
            ":5: views.v.columns.n: a column is one of",
        ),
        (BASE + "[views.v.columns]\nn = 'sum()'\n", ":5: views.v.columns.n: sum needs a field"),
        (BASE + "[views.v.columns]\nn = 'sum(x, by y)'\n", ":5: views.v.columns.n: only latest takes"),
        (BASE + "[views.v.columns]\nn = 'sum(a..b)'\n", ":5: views.v.columns.n: a column is one of"),
        (BASE + "[views.v.columns]\nn = 3\n", ":5: views.v.columns.n: a column is one of"),
        (BASE + "window = '1h'\nsession = '1h'\n" + COLUMNS, "session replaces window and every"),
        (BASE + "session = '100000001d'\n" + COLUMNS, "a session is at most"),
        (BASE + "every = '1h'\n" + COLUMNS, "every needs a window"),
        (BASE + "window = '1h'\nevery = '2h'\n" + COLUMNS, "every is longer than the window"),
        (BASE + "window = '1h'\nevery = '1ms'\n" + COLUMNS, "more than 1000 windows"),
        (BASE + "lateness = '1h'\n" + COLUMNS, "lateness needs a window or session"),
        (BASE + "window = '1h'\nlateness = '1h'\nttl = '90m'\n" + COLUMNS, "ttl is shorter than window and"),
        (BASE + "window = '1 hour'\n" + COLUMNS, ":4: views.v.window: a duration is a number and a unit"),
        (BASE + "key = 'a\"b'\n" + COLUMNS, ":4: views.v.key: "),
        ((BASE + COLUMNS).replace("views.v", "views.'a b'"), "'a b' is not a valid view name"),
        (BASE.replace("'t'", "'a b'") + COLUMNS, "'a b' is not a valid topic name"),
    ],
)
def test_a_fault_in_a_view_is_named(tmp_path, text, fault):
    with pytest.raises(BadConfig) as raised:
        view_of(tmp_path, text)
    assert fault in str(raised.value)


TABLE = "[topics.t]\nenvelope = 'debezium'\n[views.v]\ntopic = 't'\n"


def test_a_view_over_change_events_is_of_rows(tmp_path):
    config = config_of(tmp_path, TABLE.replace("debezium'", "debezium'\nvalue_format = 'registry'") + COLUMNS)
    view = config.definition("v")
    assert view == Definition("t", (Column("n", "count"),), value_format="registry", envelope="debezium")
    assert view.has_rows
    assert config.needs_registry


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("window = '1h'\n", 5, "views.v.window"),
        ("session = '1h'\n", 5, "views.v.session"),
        ("time = 'at'\n", 5, "views.v.time"),
        ("ttl = '1h'\n", 5, "views.v.ttl"),
        ("[views.v.columns]\nm = 'min(x)'\n", 6, "views.v.columns.m"),
        ("[views.v.columns]\nm = 'max(x)'\n", 6, "views.v.columns.m"),
        ("[views.v.columns]\nm = 'latest(x)'\n", 6, "views.v.columns.m"),
    ],
)
def test_what_is_not_exact_over_rows_is_refused_with_the_reason(tmp_path, text, line, field):
    columns = COLUMNS if "columns" not in text else ""
    with pytest.raises(BadConfig, match=rf"keylane.toml:{line}: {field}: the view's topic has an envelope"):
        view_of(tmp_path, TABLE + text + columns)


KEYED = "[topics.t]\n[views.v]\ntopic = 't'\nof = 'keys'\n"


def test_a_view_of_keys_has_rows_and_an_earlier_view_is_stored_as_before(tmp_path):
    view = config_of(tmp_path, KEYED + COLUMNS).definition("v")
    assert view == Definition("t", (Column("n", "count"),), of="keys")
    assert view.has_rows
    assert Definition.from_json(view.to_json()) == view
    view = config_of(tmp_path, KEYED.replace("of = 'keys'", "of = 'log'") + COLUMNS).definition("v")
    assert not view.has_rows
    assert "of" not in json.loads(view.to_json())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            KEYED + "window = '1h'\n",
            ":5: views.v.window: the view is of keys, and a key may change",
        ),
        (KEYED + "ttl = '1h'\n", ":5: views.v.ttl: the view is of keys: a group that expired would lack"),
        (KEYED.replace("[topics.t]", "[topics.t]\nttl = '1h'"), ":5: views.v.of: the topic's records expire"),
        (KEYED.replace("[topics.t]", "[topics.t]\ninsert_once = true"), ":5: views.v.of: the topic keeps"),
        (KEYED.replace("[topics.t]", "[topics.t]\nwhere = 'true'"), ":5: views.v.of: the topic's where"),
        (
            KEYED.replace("topic = 't'", "topic = 'u'"),
            ":4: views.v.of: a view of keys needs a table",
        ),
        (KEYED.replace("'keys'", "'rows'"), ":4: views.v.of: "),
        (TABLE + "of = 'log'\n", ":5: views.v.of: the view's topic has an envelope"),
    ],
)
def test_what_is_not_exact_over_keys_is_refused_with_the_reason(tmp_path, text, fault):
    with pytest.raises(BadConfig) as raised:
        view_of(tmp_path, text + COLUMNS)
    assert fault in str(raised.value)


def test_a_table_s_view_is_stored_as_before_whether_it_names_its_keys_or_not(tmp_path):
    views = [config_of(tmp_path, TABLE + of + COLUMNS).definition("v") for of in ("", "of = 'keys'\n")]
    assert views[0].to_json() == views[1].to_json()
