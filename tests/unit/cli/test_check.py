"""`keylane check`: what it finds in the files, and in the records of a topic."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace

import pytest
from click.testing import CliRunner
from tests.support.compressed import order

from keylane.model.kafka import KafkaPartition, KafkaTopic, LogRecord
from keylane.routing import partition_for
from keylane_build.sizing.workload import Workload, bytes_per_key
from keylane_cli import check_topics, check_views
from keylane_cli.check_config import check_file, check_settings
from keylane_cli.survey.key_memory import bytes_of_fields, bytes_of_key
from keylane_cli.survey.lane_balance import divide
from keylane_cli.survey.sample import TopicSample
from keylane_client.cli.commands import keylane

VIEW = '[views.v]\ntopic = "orders"\nkey = "{key}"\ncolumns = {{n = "count()", s = "sum({field})"}}\n'


def valid_file(tmp_path, text: str):
    path = tmp_path / "keylane.toml"
    path.write_text(text)
    found, valid = check_file(path)
    assert valid is not None, found
    return valid


def sample_of(records: list[tuple[int, LogRecord]], *, partitions: int = 3, count: int = 100) -> TopicSample:
    parts = tuple(KafkaPartition(number, 1, (1,), (1,)) for number in range(partitions))
    return TopicSample(KafkaTopic("orders", "id", False, parts), records, count)


def records_of(
    partitioner: str, value: bytes = b'{"amount": 1, "by": {"user": "a"}}'
) -> list[tuple[int, LogRecord]]:
    keys = [b"key-%d" % number for number in range(60)]
    return [(partition_for(key, 3, partitioner), LogRecord(0, key, value)) for key in keys]


def check_topic(tmp_path, text: str, sample: TopicSample, shards: tuple[int, ...] = ()) -> list[str]:
    valid = valid_file(tmp_path, text)
    found = check_topics.check_topic(valid, "orders", valid.config.topics["orders"], sample, shards)
    return [f"{each.kind} {each.where.rpartition(':')[2]}: {each.what}" for each in found]


def test_a_file_that_is_wrong_is_named_with_its_lines_and_ends_with_1(tmp_path):
    (tmp_path / "keylane.toml").write_text("[topics.a]\nstrips = 2\nindex = 3\n")
    (tmp_path / "keylane.env").write_text("KEYLANE_KAFKA_BOOTSTRP=a:1\nKEYLANE_REDIS_TLS=maybe\nOTHER=1\n")
    result = CliRunner().invoke(keylane, ["check", "--config", str(tmp_path / "keylane.toml")])
    assert result.exit_code == 1
    lines = sorted(result.stdout.splitlines()[:2]) + result.stdout.splitlines()[2:]
    assert len(lines) == 4
    assert "keylane.toml:2: topics.a.strips: there is no such field: did you mean stripes?" in lines[0]
    assert "keylane.toml:3: topics.a.index" in lines[1]
    assert "KEYLANE_KAFKA_BOOTSTRP is no setting: did you mean KEYLANE_KAFKA_BOOTSTRAP?" in lines[2]
    assert "KEYLANE_REDIS_TLS" in lines[3]


def test_a_fault_has_its_place_whatever_the_file_is_called(tmp_path):
    folder = tmp_path / "a: b"
    folder.mkdir()
    path = folder / "keylane.toml"
    path.write_text("[topics.a]\nstrips = 2\n")
    [found], _ = check_file(path)
    assert (found.where, found.what.partition(":")[0]) == (f"{path}:2", "topics.a.strips")
    path.write_text("[topics")
    [found], _ = check_file(path)
    assert (found.where, found.what.partition(":")[0]) == (str(path), "is not valid TOML")


def test_a_file_in_order_is_said_to_be_one_and_that_nobody_looked_at_kafka(tmp_path, monkeypatch):
    monkeypatch.delenv("KEYLANE_KAFKA_BOOTSTRAP", raising=False)
    (tmp_path / "keylane.toml").write_text("[topics.a]\n")
    result = CliRunner().invoke(keylane, ["check", "--config", str(tmp_path / "keylane.toml")])
    assert (result.exit_code, "no Kafka was looked at" in result.stdout) == (0, True)


def test_every_setting_of_an_example_is_one(tmp_path):
    (tmp_path / "keylane.env").write_text(
        "KEYLANE_KAFKA_SASL_MECHANISM=PLAIN\nKEYLANE_JARS=/x\nKEYLANE_ACCESS=\n"
    )
    assert check_settings(tmp_path / "keylane.env") == []


def test_a_view_of_a_topic_whose_name_is_near_another_is_a_note(tmp_path):
    path = tmp_path / "keylane.toml"
    path.write_text("[topics.order]\n" + VIEW.format(key="by", field="amount"))
    [found], _ = check_file(path)
    assert (found.kind, found.where) == ("note", f"{path}:3")


def test_the_partitioner_of_the_producers_is_compared(tmp_path):
    sample = sample_of(records_of("crc32"))
    [line, _] = check_topic(tmp_path, "[topics.orders]\n", sample)
    assert line.startswith("warning 1: 'crc32' is the partitioner of the producers, not 'murmur2'")
    assert len(check_topic(tmp_path, '[topics.orders]\npartitioner = "crc32"\n', sample)) == 1


def test_a_topic_without_keys_is_a_warning(tmp_path):
    [line] = check_topic(tmp_path, "[topics.orders]\n", sample_of([(0, LogRecord(0, None, b"x"))]))
    assert "have no keys" in line


EVENT = b'{"before":null,"after":{"id":1},"op":"c"}'


def test_values_and_keys_that_are_not_those_of_a_table_are_warnings(tmp_path):
    text = "[topics.orders]\nenvelope = 'debezium'\nkey_fields = { id = 'integer' }\n"
    good, bad = LogRecord(0, b'{"id":1}', EVENT), LogRecord(0, b"key", b"no")
    assert len(check_topic(tmp_path, text, sample_of([(0, good)]))) == 1
    lines = check_topic(
        tmp_path, text, sample_of([(0, good), (0, bad), (1, LogRecord(0, b'{"id":2}', None))])
    )
    assert "warning 2: 1 of 2 values are not change events: it is not a JSON object" in lines
    assert any(line.startswith("warning 3: 1 of 3 keys can't be found by their values: ") for line in lines)


def test_change_events_without_their_envelope_are_a_note(tmp_path):
    lines = check_topic(tmp_path, "[topics.orders]\n", sample_of([(0, LogRecord(0, b"k", EVENT))]))
    assert [line for line in lines if "change events of a table" in line]


@pytest.mark.parametrize(
    ("key", "note"),
    [
        (b'{"id":1}', "with key_fields keys are found by their values"),
        (b'{"id":{"scale":0}}', "keys are asked for as they are in Kafka: the field 'id' is not a string"),
        (b"k", ""),
    ],
)
def test_keys_that_are_objects_are_a_note(tmp_path, key, note):
    lines = check_topic(tmp_path, "[topics.orders]\n", sample_of([(0, LogRecord(0, key, b"1"))]))
    assert [line for line in lines if line.startswith(f"note 1: {note}")][: bool(note)] == lines[1:]


@pytest.mark.parametrize(
    ("kind", "number", "warning"),
    [
        ("time", 1793491200000, ""),
        ("time", 1793491200000000, 'look like microseconds, not milliseconds: its type is "time_us"'),
        ("time", 2013, 'look like years, not milliseconds: its type is "number"'),
        ("time_us", 1793491200000, 'look like milliseconds, not microseconds: its type is "time"'),
        ("number", 1793491200000, ""),
    ],
)
def test_a_time_in_another_unit_is_a_warning(tmp_path, kind, number, warning):
    text = f'[topics.orders]\nfields = {{ at = "{kind}" }}\n'
    lines = check_topic(tmp_path, text, sample_of([(0, LogRecord(0, b"k", b'{"at":%d}' % number))]))
    found = [line.partition("'at' ")[2] for line in lines if line.startswith("warning")]
    assert found == ([warning] if warning else [])


def test_a_value_that_is_nested_without_end_is_one_without_the_field(tmp_path):
    text = '[topics.orders]\nfields = { at = "time" }\n'
    deep = b'{"at":' * 100_000 + b"1" + b"}" * 100_000
    lines = check_topic(tmp_path, text, sample_of([(0, LogRecord(0, b"k", deep))]))
    assert [line for line in lines if "none of 1 records has a value of the type time in 'at'" in line]


def decoded_sample(*documents: bytes) -> TopicSample:
    """Records of a registry's values, as `look_at` has decoded them."""
    records = records_of("murmur2", b"\0\0\0\0\7framed")
    return replace(sample_of(records), decoded=documents)


def test_values_of_a_registry_are_looked_at_as_readers_see_them(tmp_path):
    text = '[topics.orders]\nvalue_format = "registry"\nfields = { amount = "number", amout = "number" }\n'
    lines = check_topic(tmp_path, text, decoded_sample(*[b'{"amount": 1}'] * 50))
    [warning] = [line for line in lines if line.startswith("warning")]
    assert "none of 50 records has a value of the type number in 'amout': did you mean 'amount'?" in warning
    assert not [line for line in check_topic(tmp_path, text, decoded_sample()) if line.startswith("warning")]
    lines = check_topic(tmp_path, '[topics.orders]\nvalue_format = "registry"\n', decoded_sample(EVENT))
    assert [line for line in lines if "change events of a table" in line]
    text = '[topics.orders]\nvalue_format = "registry"\nenvelope = "debezium"\n'
    lines = check_topic(tmp_path, text, decoded_sample(EVENT, b"{}"))
    assert "warning 3: 1 of 2 values are not change events: it is not a change event: it has no op" in lines
    valid = valid_file(tmp_path, "[topics.orders]\n" + VIEW.format(key="by", field="amount"))
    for sample, found in (
        (decoded_sample(), 0),
        (decoded_sample(b'{"by": 1, "amount": 2}'), 0),
        (decoded_sample(b"1"), 1),
    ):
        assert len(list(check_views.check_view(valid, "v", valid.config.views["v"], sample))) == found


def test_records_that_are_not_where_their_partitioner_puts_them_are_a_warning(tmp_path):
    mixed = [*records_of("murmur2")[:50], *records_of("crc32")[50:]]
    lines = check_topic(tmp_path, "[topics.orders]\n", sample_of(mixed))
    [line] = [each for each in lines if "strays" in each]
    assert line.startswith("warning 1: ")
    assert "of 60 records are not where producers with 'murmur2' and partition_by = 'key' put them" in line
    assert not [
        each
        for each in check_topic(tmp_path, "[topics.orders]\nguarded = true\n", sample_of(mixed))
        if "strays" in each
    ]
    keys = [b"c%d|%d" % (number % 9, number) for number in range(60)]
    for part, expected in ((b"|", False), (None, True)):
        placed = [
            (partition_for(key.split(part)[0] if part else key, 3), LogRecord(0, key, b"1")) for key in keys
        ]
        lines = check_topic(tmp_path, '[topics.orders]\npartition_by = "prefix:|"\n', sample_of(placed))
        assert bool([each for each in lines if each.startswith("warning 2") and "strays" in each]) is expected


def test_a_view_whose_time_counts_something_else_is_a_warning(tmp_path):
    view = 'topic = "orders"\ntime = "at"\nwindow = "1d"\ncolumns = { n = "count()" }\n'
    text = f"[topics.orders]\n[views.v]\n{view}"
    valid = valid_file(tmp_path, text)
    for at, expected in (
        (2013, "years"),
        (1793491200000000, "microseconds"),
        (1793491200000, ""),
        ('"2013"', ""),
    ):
        sample = sample_of([(0, LogRecord(0, b"k", f'{{"at": {at}}}'.encode()))])
        found = [each.what for each in check_views.check_view(valid, "v", valid.config.views["v"], sample)]
        wanted = f"the numbers in 'at' look like {expected}: a view takes them for milliseconds"
        assert found == ([wanted] if expected else [])


@pytest.mark.parametrize(
    ("options", "noted"),
    [
        ("", True),
        ('of = "keys"\n', False),
        ('of = "log"\n', False),
        ('window = "1h"\n', False),
        ('session = "1h"\n', False),
    ],
)
def test_a_view_that_counts_a_key_with_each_of_its_records_is_a_note(tmp_path, options: str, noted: bool):
    text = f'[topics.orders]\n[views.v]\ntopic = "orders"\n{options}columns = {{ n = "count()" }}\n'
    valid = valid_file(tmp_path, text)
    sample = sample_of([(0, LogRecord(0, key, b"{}")) for key in (b"a", b"b", b"a")])
    found = [each.what for each in check_views.check_view(valid, "v", valid.config.views["v"], sample)]
    what = "1 of 3 records have a key that came before, and the view counts each record"
    assert found == (
        [f'{what}: with of = "keys" it counts each key once, as its latest record is'] if noted else []
    )


def test_topics_that_can_t_be_joined_for_their_partitions_are_a_note(tmp_path):
    text = "[topics.a]\n[topics.b]\n[topics.c]\n[topics.d]\nstripes = 2\n[topics.e]\n"
    counts = {"a": 3, "b": 3, "c": 6, "d": 9, "e": 6}
    found = list(check_topics.check_joins(valid_file(tmp_path, text), counts))
    [each] = found
    assert each.what == "it has 6 partitions, topic 'a' has 3: /join does not read both"
    assert each.where.endswith(":3")


def test_memory_is_that_of_the_calculator(tmp_path):
    for indexed in (False, True):
        workload = Workload(1, 1, keys=1, key_bytes=20, value_bytes=200, topic_bytes=10, indexed=indexed)
        assert bytes_of_key(10, 20, 200, indexed=indexed) == bytes_per_key(workload)
    [note] = check_topic(tmp_path, "[topics.orders]\n", sample_of(records_of("murmur2"), count=10**9))
    assert note.startswith("note 1: at most 1,000,000,000 keys of ")


def compressible(count: int = 300) -> TopicSample:
    keys = [b"key-%d" % number for number in range(count)]
    records = [(partition_for(key, 3), LogRecord(0, key, order(each))) for each, key in enumerate(keys)]
    return sample_of(records, count=10**9)


def test_what_compression_saves_is_said_and_counted(tmp_path):
    [plain] = check_topic(tmp_path, "[topics.orders]\n", compressible())
    text = plain.partition('; compression = "zstd": ')[2]
    before, after, less = map(int, re.findall(r"\d+", text)[:3])
    assert text == f"{before} -> {after} bytes a record, {less}% less (`keylane help sizing`)"
    assert f"keys of {before} bytes" in plain
    assert before > after > before - len(order(1))
    assert abs(less - 100 * (1 - after / before)) < 1
    [compressed] = check_topic(tmp_path, '[topics.orders]\ncompression = "zstd"\n', compressible())
    assert compressed.endswith(f"; compression: {text}")
    assert f"keys of {after} bytes" in compressed
    gib = [float(re.search(r"([\d.]+) GiB", line)[1]) for line in (plain, compressed)]
    assert gib[1] / gib[0] == pytest.approx(after / before, rel=0.01)


def test_of_few_records_and_of_values_that_do_not_get_shorter_nothing_is_said(tmp_path):
    [few] = check_topic(tmp_path, "[topics.orders]\n", compressible(150))
    assert "compression" not in few
    random_ = [(0, LogRecord(0, b"k%d" % each, random.Random(each).randbytes(150))) for each in range(300)]
    assert not any(
        "compression" in line for line in check_topic(tmp_path, "[topics.orders]\n", sample_of(random_))
    )


def test_values_of_a_schema_registry_are_not_taken_for_change_events(tmp_path):
    framed = b"\0\0\0\0\x07value"
    [line] = check_topic(tmp_path, "[topics.orders]\n", sample_of(records_of("murmur2", framed)))
    assert line.startswith("note 1: at most")


def test_an_index_that_elasticache_could_not_move_is_a_warning(tmp_path):
    text = "[topics.orders]\nindex = true\n"
    sample = sample_of(records_of("murmur2"), count=100_000_000)
    [_, line] = check_topic(tmp_path, text, sample)
    assert "more stripes, or index_parts = " in line
    parts = int(line.rpartition(" ")[2])
    assert len(check_topic(tmp_path, f"{text}index_parts = {parts}\n", sample)) == 1
    assert len(check_topic(tmp_path, f"{text}stripes = 10\n", sample)) == 1


FIELDS = 'index = true\nfields = { amount = "number", by.user = "text" }\n'


def test_memory_of_fields_is_that_of_the_calculator(tmp_path):
    value = b'{"amount": 10, "by": {"user": "abcd"}}'  # amount is 4 bytes in its index: 81 80 03 0b
    sample = sample_of([(0, LogRecord(0, b"key-0", value)), (1, LogRecord(0, b"key-1", value))])
    workload = Workload(1, 1, 1, key_bytes=5, value_bytes=len(value), topic_bytes=6, fields=2, field_bytes=4)
    [line] = check_topic(tmp_path, "[topics.orders]\n" + FIELDS, sample)
    of_fields = bytes_of_fields(5, 2, 8)
    assert f"keys of {bytes_per_key(workload):.0f} bytes ({of_fields:.0f} of them for its fields)" in line
    assert bytes_per_key(replace(workload, fields=0)) == bytes_per_key(workload) - of_fields - 101
    # Half of the records, half of the memory; tombstones and values of other types take none.
    half = sample_of([(0, LogRecord(0, b"key-0", value)), (1, LogRecord(0, b"key-1", b'{"amount": []}'))])
    [line] = check_topic(tmp_path, "[topics.orders]\n" + FIELDS, half)
    assert f"({bytes_of_fields(5, 1, 4):.0f} of them" in line


def test_fields_that_no_record_has_are_warnings(tmp_path):
    text = '[topics.orders]\n[topics.orders.fields]\namout = "number"\nby.user = "time"\n'
    [_, other, missing] = sorted(check_topic(tmp_path, text, sample_of(records_of("murmur2"))))
    assert missing.startswith("warning 3: none of 60 records has a value of the type number in 'amout'")
    assert missing.endswith(": did you mean 'amount'?")
    assert other.endswith("has a value of the type time in 'by.user'")


def test_an_index_of_a_field_that_elasticache_could_not_move_is_a_warning(tmp_path):
    count = 3 * 256_000_000 // (len("key-10") + 10) - 1_000_000  # the index of keys alone could be moved
    sample = sample_of(records_of("murmur2"), count=count)
    assert len(check_topic(tmp_path, "[topics.orders]\nindex = true\n", sample)) == 1
    [_, line] = check_topic(tmp_path, '[topics.orders]\nfields = { amount = "number" }\n', sample)
    assert line.startswith("warning 2: an index of a lane may reach ")


def test_lanes_that_leave_a_shard_empty_or_full_are_a_warning_with_better_stripes(tmp_path):
    shards, sample = tuple(divide(6)), sample_of(records_of("murmur2"), count=100_000_000)
    [_, line] = check_topic(tmp_path, "[topics.orders]\n", sample, shards)
    assert line.startswith("warning 1: a shard has no lane: with stripes = ")
    stripes = int(line.split("stripes = ")[1].split()[0])
    better = f"[topics.orders]\nstripes = {stripes}\n"
    assert len(check_topic(tmp_path, better, sample, shards)) == 1
    # A topic that is small need not be spread.
    assert len(check_topic(tmp_path, "[topics.orders]\n", sample_of(records_of("murmur2")), shards)) == 1


def test_more_lanes_than_slots_are_wrong(tmp_path):
    text = "[topics.orders]\nstripes = 6000\n"
    [line] = check_topic(tmp_path, text, sample_of(records_of("murmur2")))
    assert line.startswith("wrong 2: 3 partitions x 6000 stripes")


@pytest.mark.parametrize(
    ("key", "field", "said"),
    [
        ("by.user", "amount", []),
        ("by.usr", "amount", ["none of 60 records has the field 'by.usr': did you mean 'by.user'?"]),
        ("by.user", "amunt", ["none of 60 records has the field 'amunt': did you mean 'amount'?"]),
    ],
)
def test_a_field_that_no_record_has_is_named_with_the_one_that_was_meant(tmp_path, key, field, said):
    valid = valid_file(tmp_path, "[topics.orders]\n" + VIEW.format(key=key, field=field))
    view = valid.config.views["v"]
    found = check_views.check_view(valid, "v", view, sample_of(records_of("murmur2")))
    assert [each.what for each in found] == said


def test_a_view_of_values_that_are_no_json_objects_is_a_warning(tmp_path):
    valid = valid_file(tmp_path, "[topics.orders]\n" + VIEW.format(key="a", field="b"))
    records = records_of("murmur2", json.dumps([1]).encode())
    [found] = check_views.check_view(valid, "v", valid.config.views["v"], sample_of(records))
    assert "is a JSON object" in found.what


def test_a_function_that_can_t_be_imported_is_wrong_and_one_beside_the_file_is_not(tmp_path):
    (tmp_path / "checked_functions.py").write_text("def there(batch): return batch\n")
    (tmp_path / "keylane.toml").write_text(
        '[topics.a]\ntransform = "checked_functions:there"\n'
        '[topics.b]\ntransform = "checked_functions:gone"\n'
    )
    result = CliRunner().invoke(keylane, ["check", "--config", str(tmp_path / "keylane.toml")])
    assert result.exit_code == 1
    wrong = [line for line in result.stdout.splitlines() if line.startswith("wrong")]
    assert len(wrong) == 1
    assert "keylane.toml:4: transform 'checked_functions:gone': module" in wrong[0]
    assert "has no function 'gone'" in wrong[0]
