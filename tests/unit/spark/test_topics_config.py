"""keylane.toml: what is accepted, and how errors are reported."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from keylane.errors import BadConfig
from keylane.model.kafka import NewTopic
from keylane.model.records import Options
from keylane_local.tools import project_root
from keylane_spark.config.config_file import MOST_FAULTS, InvalidConfigFile, load
from keylane_spark.config.job import JobConfig
from keylane_spark.config.topics import TopicConfig
from keylane_spark.config.views import ViewConfig

if TYPE_CHECKING:
    from pathlib import Path

    from keylane_spark.config.table import ConfigTable


@pytest.fixture
def file(tmp_path):
    """Write keylane.toml; return its path."""

    def write(text: str, encoding: str = "utf-8") -> Path:
        (path := tmp_path / "keylane.toml").write_text(text, encoding)
        return path

    return write


def test_a_topic_needs_its_name_alone(file):
    config = load(file("[topics.flights]\n"))
    assert config.topics["flights"].partitioner == "murmur2"
    assert config.topics["flights"].partition_by == "key"
    assert config.topics["flights"].stripes == 1
    assert config.job.fetch_max_wait_ms == 5


def test_retention_and_options_become_those_of_the_layout(file):
    path = file(
        "[topics.a]\nttl = '30d'\nhistory_count = 100\nhistory_age = '90 m'\nindex = true\nindex_parts = 16\n"
        "headers = true\nguarded = true\nmax_value_bytes = 1000\ntombstone_marker = '0s'\n"
        "value_format = 'registry'\nenvelope = 'debezium'\n"
        "key_fields = { region = 'string', id = 'integer' }\n[topics.b]\ninsert_once = true\n"
    )
    topics = load(path).topics
    assert topics["a"].options == Options(
        30 * 86_400_000,
        100,
        5_400_000,
        index=16,
        headers=True,
        guarded=True,
        max_value_bytes=1000,
        marker_ms=0,
        value_format="registry",
        envelope="debezium",
        key_fields=(("region", "string"), ("id", "integer")),
    )
    assert topics["b"].options == Options(insert_once=True)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("[topics.a]\nstripes = 0\n", ["keylane.toml:2: topics.a.stripes: ", "not 0"]),
        ("[topics.a]\n\n[topics.b]\nstripes = 'x'\n", ["keylane.toml:4: topics.b.stripes: ", "not 'x'"]),
        ("[topics.a]\npartitioner = 'md5'\n", ["keylane.toml:2: topics.a.partitioner: ", "'murmur2'"]),
        ("[topics.a]\npartition_by = '|'\n", [":2: topics.a.partition_by: ", '"prefix:"', "not '|'"]),
        ("[topics.a]\npartition_by = 'prefix:123456789'\n", [":2: topics.a.partition_by: ", "8 bytes"]),
        (
            "[topics.a]\nstrips = 2\n",
            ["keylane.toml:2: topics.a.strips: there is no such field: did you mean stripes?"],
        ),
        ("[topic.a]\n", ["keylane.toml:1: topic: there is no such field: did you mean topics?"]),
        ("[topics.a]\n[job]\nzzz = 2\n", ["keylane.toml:3: job.zzz: there is no such field"]),
        ("[job]\nheartbeat_ms = 1\n[topics.a]\n", ["keylane.toml:2: job.heartbeat_ms: "]),
        (
            f"[job]\nmax_batch_records = {2**63}\nredis_patience_s = inf\n[topics.a]\n",
            [":2: job.max_batch_records: ", ":3: job.redis_patience_s: "],
        ),
        (
            "[topics.a]\nttl = '30 days'\n",
            [":2: topics.a.ttl: ", "a duration is a number and a unit", "'30 days'"],
        ),
        ("[topics.a]\nttl = 30\n", [":2: topics.a.ttl: ", "a duration is a number and a unit"]),
        ("[topics.a]\nttl = '0s'\n", [":2: topics.a.ttl: "]),
        ("[topics.a]\ninsert_once = true\nhistory_count = 3\n", [":1: topics.a: insert_once"]),
        ("[topics.a.key_fields]\nid = 'uuid'\n", [":2: topics.a.key_fields.id: ", "'integer'"]),
        ("[topics.a]\nenvelope = 'canal'\n", [":2: topics.a.envelope: ", "'debezium'"]),
        (
            "[topics.a]\nenvelope = 'debezium'\nvalue_format = 'text'\n",
            [":1: topics.a: change events are JSON"],
        ),
        ("[topics.a]\nindex_parts = 3\n", [":1: topics.a: index_parts", "index = true"]),
        (
            "[topics.a.fields]\nx.y = 'uuid'\n",
            ["topics.a.fields: the field y is one of text", "'uuid'"],
        ),
        ("[topics.a]\nfields = 3\n", [":2: topics.a.fields: this is a table"]),
        ("[topics.a]\nvalue_format = 'bytes'\nfields.x = 'text'\n", [":1: topics.a: fields are of JSON"]),
        ("[topics.a]\nfields.x = 'text'\nindexes.i = ['x', 'y']\n", ["is of y, which is not one of"]),
        ("[topics.a]\nfields.x = 'text'\nindexes.i = ['x', 'x']\n", ["2 to 3 different fields"]),
        ("[topics.a]\nfields = {x = 'text', y = 'texts'}\nindexes.i = ['x', 'y']\n", ["several values"]),
        ("[topics.a]\nfields = {x = 'text', y = 'text'}\nindexes.x = ['x', 'y']\n", ["name of a field"]),
        ("[topics.a]\nindex = true\nindex_parts = 257\n", [":3: topics.a.index_parts: ", "not 257"]),
        ("[topics.'a b']\n", ["keylane.toml:1: topics: ", "'a b' is not a valid topic name"]),
        ("[job]\n", ["keylane.toml:1: topics: "]),
        ("[topics.a\n", ["keylane.toml: is not valid TOML: ", "line 1"]),
        ("[topics.a]\nstripes = 0\npartitions = 0\n", [":2: topics.a.stripes", ":3: topics.a.partitions"]),
    ],
)
def test_a_fault_names_line_and_field(file, text, faults):
    path = file(text)
    with pytest.raises(BadConfig) as raised:
        load(path)
    for fault in faults:
        assert fault in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        '[topics.a.fields]\ntags = ["texts"]',
        "[topics.a.fields]\ntags = 5",
        "x = " + "[" * 1_000 + "]" * 1_000,
        "[topics.a.fields]\n" + "a." * 1_000 + 'b = "text"',
        "[" + "a." * 1_000 + "b]",
        f"[topics.a]\nwhere = [{', '.join(['1'] * 10_000)}]",
    ],
    ids=["list", "number", "arrays", "field", "table", "long"],
)
def test_a_value_of_any_type_depth_and_length_is_a_fault_with_a_sentence(file, text):
    path = file(text)
    with pytest.raises(BadConfig, match=re.escape(str(path))) as raised:
        load(path)
    assert len(str(raised.value)) < len(str(path)) + 3_000


def test_of_thousands_of_faults_the_first_are_named(file):
    path = file("".join(f"[topics.t{number}]\nindex = 1\n" for number in range(5_000)))
    with pytest.raises(InvalidConfigFile) as raised:
        load(path)
    assert len(raised.value.faults) == MOST_FAULTS + 1
    assert raised.value.faults[0].where == f"{path}:2"
    assert raised.value.faults[-1] == (str(path), f"and {5_000 - MOST_FAULTS:,} more faults")


def test_a_file_may_begin_with_a_byte_order_mark(file):
    path = file("[topics.a]\nindex = true\n", encoding="utf-8-sig")
    assert load(path).topics["a"].index


def test_fields_are_named_by_dotted_keys_and_imply_an_index(file):
    path = file(
        "[topics.a.fields]\nstatus = 'text'\ncustomer.id = 'number'\ncustomer.since = 'time'\n"
        "[topics.a.indexes]\nboth = ['status', 'customer.id']\n"
    )
    options = load(path).topics["a"].options
    assert options.fields == (("customer.id", "number"), ("customer.since", "time"), ("status", "text"))
    assert options.indexes == (("both", ("status", "customer.id")),)
    assert options.index == 1
    assert Options.from_dict(json.loads(json.dumps(options.to_dict()))) == options


def test_a_missing_file_is_named_by_its_path(tmp_path):
    with pytest.raises(BadConfig, match=r"nowhere\.toml: can't be read"):
        load(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ('forget_topics = ["orders"]', "'orders' has a table in this file: remove that first"),
        ('forget_views = ["daily"]', "'daily' has a table in this file: remove that first"),
        ('forget_topics = ["no topic"]', "'no topic' is not a valid name"),
    ],
)
def test_what_is_served_can_not_be_forgotten(file, job, reason):
    path = file(
        f'[job]\n{job}\n[topics.orders]\n[views.daily]\ntopic = "orders"\ncolumns = {{ n = "count()" }}\n'
    )
    with pytest.raises(BadConfig, match=reason):
        load(path)


def test_forgotten_topics_and_views_have_their_names_in_redis(file):
    path = file('[job]\nforget_topics = ["old"]\nforget_views = ["daily"]\n[topics.orders]\n')
    config = load(path)
    assert config.forgotten == ["old", "~daily"]
    assert config.state_names == {"orders"}


def test_a_topic_says_how_it_is_created(file):
    path = file(
        "[job]\ncreate_topics = true\n[topics.a]\n[topics.b]\npartitions = 3\n"
        '[topics.b.kafka]\n"cleanup.policy" = "compact"\n"retention.ms" = 60000\n"preallocate" = true\n'
    )
    config = load(path)
    assert config.job.create_topics
    assert config.topics["a"].created_as == NewTopic(9, {})
    settings = {"cleanup.policy": "compact", "retention.ms": "60000", "preallocate": "true"}
    assert config.topics["b"].created_as == NewTopic(3, settings)


@pytest.mark.parametrize(
    ("section", "table"), [("[topics.NAME]", TopicConfig), ("[views.NAME]", ViewConfig), ("[job]", JobConfig)]
)
def test_the_options_of_a_table_are_those_of_its_page(section: str, table: type[ConfigTable]):
    page = (project_root() / "docs" / "configuration" / "topics.md").read_text(encoding="utf-8")
    text = page.partition(f"\n## `{section}`\n")[2].partition("\n## ")[0]
    tables = [each for each in text.split("\n\n") if each.lstrip().startswith("| option |")]
    rows = [line.split("|")[1] for each in tables for line in each.splitlines() if line]
    assert {name for row in rows for name in re.findall("`([a-z_]+)`", row)} == table.model_fields.keys()
