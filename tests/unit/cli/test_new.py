"""`keylane new`: which partitioner it names, and the files that it writes."""

from __future__ import annotations

import json
import tomllib

import pytest
from click.testing import CliRunner

from keylane.routing import PARTITIONERS, partition_for
from keylane_cli.new_project import TopicFound
from keylane_cli.project_files import render_topics
from keylane_cli.survey.compression_saving import CompressionSaving
from keylane_cli.survey.lane_balance import Proposal, divide, propose_stripes
from keylane_cli.survey.partitioner_guess import PartitionerGuess, guess_partitioner
from keylane_cli.survey.table_guess import guess_fields
from keylane_client.cli.commands import keylane
from keylane_local import env_file
from keylane_local.errors import BadInput
from keylane_spark.config.config_file import load

ANSWERS = ["--kafka", "a:9092,b:9092", "--redis", "r:6379", "--topic", "orders.eu", "--stack", "mine"]


def placed_by(partitioner: str, keys: range, partition_count: int = 9) -> list[tuple[int, bytes | None]]:
    names = [b"key-%d" % number for number in keys]
    return [(partition_for(name, partition_count, partitioner), name) for name in names]


@pytest.mark.parametrize("name", PARTITIONERS)
def test_the_partitioner_that_explains_all_keys_is_named(name):
    found = guess_partitioner([*placed_by(name, range(40)), (3, None), (4, b"")], 9)
    assert (found.partitioner, found.is_guarded) == (name, False)
    assert found.reason == "all 40 keys are where it puts them"


def test_several_partitioners_are_noticed():
    found = guess_partitioner([*placed_by("crc32", range(40)), *placed_by("fnv1a", range(40, 50))], 9)
    assert (found.partitioner, found.is_guarded) == ("crc32", True)


def test_what_cannot_be_told_is_said_not_to_be():
    assert "too few" in guess_partitioner(placed_by("crc32", range(5)) * 10, 9).reason
    assert "one partition" in guess_partitioner(placed_by("crc32", range(40), 1), 1).reason
    own = [(number % 9, b"key-%d" % number) for number in range(200)]
    assert "no known one" in guess_partitioner(own, 9).reason


EXPLAINED = "all 40 keys are where it puts them"
MURMUR2 = PartitionerGuess("murmur2", is_guarded=False, reason=EXPLAINED)


def rendered(folder, found: dict[str, TopicFound]):
    """The topics of the file that is written for these."""
    (folder / "keylane.toml").write_text(render_topics(found))
    return load(folder / "keylane.toml").topics


def test_what_compression_saves_stands_beside_the_option(tmp_path):
    found = TopicFound(3, MURMUR2, saving=CompressionSaving(412, 148, 0.2))
    topics = rendered(tmp_path, {"orders": found})
    assert topics["orders"].compression == "none"
    text = (tmp_path / "keylane.toml").read_text()
    assert '# compression = "zstd" # 412 -> 148 bytes a record, 64% less\n' in text
    (tmp_path / "keylane.toml").write_text(text.replace("# compression", "compression"))
    assert load(tmp_path / "keylane.toml").topics["orders"].compression == "zstd"
    little = TopicFound(3, MURMUR2, saving=CompressionSaving(412, 400, 0.9))
    assert "compression" not in render_topics({"orders": little})


def new(*arguments: str, text: str | None = None, exit_code: int = 0) -> str:
    result = CliRunner().invoke(keylane, ["new", *arguments], input=text)
    if isinstance(result.exception, BadInput):
        return str(result.exception)
    assert result.exit_code == exit_code, result.output
    return result.output


def test_the_files_are_ones_that_job_and_sam_read(tmp_path):
    new(str(tmp_path / "own"), *ANSWERS, "--unchecked")
    config = load(tmp_path / "own" / "keylane.toml")
    assert config.topics["orders.eu"].partitioner == "murmur2"
    sam = tomllib.loads((tmp_path / "own" / "samconfig.toml").read_text())["default"]
    assert sam["global"]["parameters"]["stack_name"] == "mine"
    overrides = sam["deploy"]["parameters"]["parameter_overrides"]
    assert {"KafkaBootstrap=a:9092,b:9092", "RedisNodes=r:6379", "RedisTls=false"} <= set(overrides)


def test_the_address_of_kafka_is_asked_for(tmp_path, monkeypatch):
    for name in ("KEYLANE_KAFKA_BOOTSTRAP", "KEYLANE_REDIS_NODES"):
        monkeypatch.delenv(name, raising=False)
    printed = new(str(tmp_path), "--unchecked", "--topic", "orders", text="nonsense\na:9092\n")
    assert "write HOST:PORT" in printed
    assert (tmp_path / "keylane.toml").read_text().count("[topics.orders]") == 1
    assert not (tmp_path / "samconfig.toml").exists(), "AWS is not in question"
    # Nothing is written to somebody's topics before he says so.
    served = {"KEYLANE_TOPICS": '{"read": ["orders"], "write": []}'}
    assert env_file.read(tmp_path / "keylane.env") == {"KEYLANE_KAFKA_BOOTSTRAP": "a:9092"} | served
    allowed = '# KEYLANE_TOPICS={"read": ["orders"], "write": ["orders"]}\n'
    assert allowed in (tmp_path / "keylane.env").read_text()


def test_what_logs_in_is_kept_and_passwords_are_not(tmp_path, monkeypatch):
    monkeypatch.setenv("KEYLANE_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("KEYLANE_KAFKA_SASL_PASSWORD", "hunter2")
    printed = new(str(tmp_path), *ANSWERS, "--unchecked")
    assert "Not written: KEYLANE_KAFKA_SASL_PASSWORD." in printed
    found = env_file.read(tmp_path / "keylane.env")
    assert found["KEYLANE_KAFKA_SECURITY_PROTOCOL"] == "SASL_SSL"
    assert "hunter2" not in "".join(path.read_text() for path in tmp_path.iterdir())


def test_several_topics_have_a_table_each_and_one_without_keys_none(tmp_path):
    guess = PartitionerGuess("crc32", is_guarded=False, reason=EXPLAINED)
    found = {
        "b.c": TopicFound(3, guess, has_schemas=True),
        "lines": TopicFound(1, guess, has_keys=False),
        "a": TopicFound(3, guess),
    }
    topics = rendered(tmp_path, found)
    assert {name: each.value_format for name, each in topics.items()} == {"b.c": "registry", "a": "auto"}
    assert all(each.partitioner == "crc32" for each in topics.values())


def test_the_topic_of_a_table_gets_its_envelope_and_the_fields_of_its_keys(tmp_path):
    fields = (('a "b"', "string"), ("id", "integer"))
    table = TopicFound(3, MURMUR2, has_events=True, key_fields=fields)
    found = {"shop.items": table, "plain": TopicFound(3, MURMUR2)}
    topics = rendered(tmp_path, found)
    assert (topics["shop.items"].envelope, topics["plain"].envelope) == ("debezium", "none")
    assert topics["shop.items"].options.key_fields == fields


def test_fields_that_are_proposed_are_those_of_the_records():
    values = [
        b'{"id": %d, "state": "s%d", "n": 1, "at": "x", "odd": %s, "deep": {"b": true}, "none": null}'
        % (number, number % 3, b'"a"' if number % 2 else b"1")
        for number in range(20)
    ]
    found = guess_fields(values)
    assert found[0] == ("state", "text")
    assert set(found[1:]) == {("n", "number"), ("at", "text"), ("deep.b", "boolean"), ("id", "number")}
    text = render_topics({"t": TopicFound(3, MURMUR2, others=found[:1], times=[("at", "time")])})
    assert '# fields = { state = "text", at = "time" }' in text
    assert '# fields = { status = "text" }' in render_topics({"t": TopicFound(3, MURMUR2)})


def test_a_table_or_keys_for_which_nothing_is_proposed_say_why(tmp_path):
    faults = {
        "event_fault": "1 of 2 values are not change\nevents",
        "key_fault": "the field 'ID' is not a string",
    }
    found = {
        "odd": TopicFound(3, MURMUR2, **faults),
        "framed": TopicFound(3, MURMUR2, has_registry_keys=True, **faults),
    }
    topics = rendered(tmp_path, found)
    assert {(each.envelope, each.key_format) for each in topics.values()} == {("none", "text")}
    text = (tmp_path / "keylane.toml").read_text()
    assert text.count('# envelope = "debezium" # 1 of 2 values are not change events\n') == 2
    assert text.count("# keys are asked for as they are in Kafka: the field 'ID' is not a string\n") == 2


def test_fields_that_may_be_times_are_in_the_example(tmp_path):
    times = [("created", "time_us"), ("a b.at", "time"), ("c", "time"), ("d", "time")]
    text = render_topics({"orders": TopicFound(3, MURMUR2, times=times)})
    [line] = [each for each in text.splitlines() if "fields = " in each]
    assert '{ created = "time_us", "a b".at = "time", c = "time" }' in line
    (tmp_path / "keylane.toml").write_text(text.replace(line, line.removeprefix("# ")))
    assert load(tmp_path / "keylane.toml").topics["orders"].fields["a b.at"] == "time"


def test_keys_with_a_schema_get_it_and_those_of_a_registry_their_format(tmp_path):
    schema = '{"type":"struct","fields":[{"type":"int32","field":"i\\u00fc\x7f\\""}],"name":"a.Key"}'
    found = {
        "with-schema": TopicFound(3, MURMUR2, key_schema=schema),
        "registered": TopicFound(3, MURMUR2, has_schemas=True, has_events=True, has_registry_keys=True),
    }
    topics = rendered(tmp_path, found)
    assert topics["with-schema"].options.key_schema == schema
    registered = topics["registered"]
    assert (registered.key_format, registered.envelope) == ("registry", "debezium")


def test_all_topics_cannot_be_taken_without_a_look(tmp_path):
    assert "--unchecked needs --topic" in new(str(tmp_path), "--kafka", "a:1", "--unchecked")


def test_files_that_exist_stay_unless_it_is_forced(tmp_path):
    (tmp_path / "keylane.toml").write_text("mine")
    assert "--force" in new(str(tmp_path), *ANSWERS, "--unchecked")
    assert (tmp_path / "keylane.toml").read_text() == "mine"
    document = json.loads(new(str(tmp_path), *ANSWERS, "--unchecked", "--force", "--json"))
    assert document["topics"][0]["partitioner"] == "murmur2"
    assert "orders.eu" in (tmp_path / "keylane.toml").read_text()


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("--topic", "a b"),
        ("--stack", "1x"),
        ("--stack", "s" * 41),
        ("--kafka", "http://a:1"),
        ("--redis", "a"),
    ],
)
def test_an_answer_that_cannot_be_right_is_refused(tmp_path, option, given):
    at = ANSWERS.index(option)
    arguments = [*ANSWERS[: at + 1], given, *ANSWERS[at + 2 :]]
    assert f"Invalid value for '{option}'" in new(str(tmp_path), *arguments, exit_code=2)
    assert not (tmp_path / "keylane.toml").exists()


@pytest.mark.parametrize("partitions", [1, 12])
def test_stripes_that_were_proposed_are_in_the_file_with_their_reason(tmp_path, partitions):
    proposed = propose_stripes(partitions, divide(3))
    text = render_topics({"orders": TopicFound(partitions, MURMUR2, proposed)})
    assert f"no shard has more than {proposed.fullest:.2f} times its share, up to 12 shards" in text
    (tmp_path / "keylane.toml").write_text(text)
    assert load(tmp_path / "keylane.toml").topics["orders"].stripes == proposed.stripes > 1


def test_a_cluster_that_no_stripes_fill_evenly_is_said_to_be_uneven():
    text = render_topics({"orders": TopicFound(3, MURMUR2, Proposal(7, 1.42, 3, 12))})
    assert "stripes = 7 # the fullest shard has 1.42 times its share: no number gives less here" in text


def test_nothing_is_proposed_for_a_cluster_that_nobody_looked_at(tmp_path):
    document = json.loads(new(str(tmp_path), *ANSWERS, "--unchecked", "--json"))
    assert document["topics"][0]["stripes"] is None
    assert "stripes" not in (tmp_path / "keylane.toml").read_text()
