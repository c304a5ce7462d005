"""Which partitioner a topic's records agree with."""

from __future__ import annotations

from keylane.model.records import Layout, Options
from keylane_spark.telemetry.strays import PartitionerAudit
from keylane_spark.telemetry.tally import Tally

LAYOUTS = {"orders": Layout("orders", 9)}


def test_a_topic_that_another_partitioner_filled_is_named_once_with_it():
    audit = PartitionerAudit(LAYOUTS)
    tallies = {("orders", 0): Tally(records=900, strays=800, crc32=800, fnv1a=90)}
    (sentence,) = audit.add(tallies)
    assert "800 of 900 records lie where crc32 puts them, not murmur2" in sentence
    assert audit.add(tallies) == []


def test_a_few_strays_or_strays_of_no_partitioner_are_no_reason_to_speak():
    assert PartitionerAudit(LAYOUTS).add({("orders", 0): Tally(records=900, strays=60, crc32=60)}) == []
    assert PartitionerAudit(LAYOUTS).add({("orders", 0): Tally(records=90, strays=80, crc32=79)}) == []
    assert PartitionerAudit(LAYOUTS).add({("orders", 0): Tally(records=30, strays=30, crc32=30)}) == []


def test_producers_that_partition_by_the_whole_key_are_reported():
    audit = PartitionerAudit({"trips": Layout("trips", 9, partition_by="prefix:|")})
    (sentence,) = audit.add({("trips", 0): Tally(records=900, strays=800, crc32=90, whole_key=800)})
    assert "800 of 900 records lie where murmur2 of the whole key puts them" in sentence
    assert "'prefix:|'" in sentence
    audit = PartitionerAudit({"trips": Layout("trips", 9, partition_by="prefix:|")})
    (sentence,) = audit.add({("trips", 0): Tally(records=900, strays=800, crc32=800)})
    assert "lie where crc32 by 'prefix:|' puts them, not murmur2" in sentence


def test_batches_add_up():
    audit = PartitionerAudit(LAYOUTS)
    batch = {("orders", 3): Tally(records=30, null_keys=10, strays=15, fnv1a=15)}
    assert [len(audit.add(batch)) for _ in range(4)] == [0, 0, 0, 1]


def test_the_first_value_of_a_topic_that_is_left_in_kafka_is_reported():
    audit = PartitionerAudit({"orders": Layout("orders", 9, options=Options(max_value_bytes=1_000_000))})
    tallies = {("orders", 0): Tally(records=9, left_in_kafka=1), ("orders", 1): Tally(left_in_kafka=1)}
    (sentence,) = audit.add(tallies)
    assert "has values over 1,000,000 bytes: they are left in Kafka" in sentence
    assert audit.add(tallies) == []
