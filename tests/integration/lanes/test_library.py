"""The library's functions that fence a topic's layout, called as the writer calls them."""

from __future__ import annotations

import itertools

import pytest
from redis import Redis
from tests.support import lanes as t

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.resp import encode_command
from keylane.errors import Fenced
from keylane.model.records import Layout
from keylane.ports import Deadline
from keylane_spark.lanes import function_library as library
from keylane_spark.lanes.function_library import CallRefused, FunctionLibrary
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.lanes.old_libraries import remove_old_libraries
from keylane_spark.lanes.topic_record import Owner, TopicRecord

NUMBERS = itertools.count()
SLOT = routing.key_slot(b"{keylane}")


def call(nodes: str, function: bytes, keys: list[bytes], *arguments: bytes):
    cluster = Cluster(t.settings(nodes))
    packed = encode_command(b"FCALL", function, b"%d" % len(keys), *keys, *arguments)
    try:
        return FunctionLibrary(cluster, t.CLOCK).call(SLOT, packed)
    finally:
        cluster.close()


def take(nodes: str, key: bytes, expected: int, above: int = 0, run: bytes = b"") -> int:
    return call(nodes, library.EPOCH, [key], b"%d" % expected, b"%d" % above, run)


def new_key(kind: str = "epoch") -> bytes:
    return b"{keylane}:%b:library-%d" % (kind.encode(), next(NUMBERS))


def test_each_start_takes_a_higher_epoch_and_one_above_the_given_number(redis_cluster):
    key = new_key()
    assert [take(redis_cluster, key, -1), take(redis_cluster, key, -1)] == [1, 2]
    assert take(redis_cluster, key, 2, above=10) == 11
    assert take(redis_cluster, key, 11) == 12


def test_a_run_that_another_has_overtaken_gets_no_epoch(redis_cluster):
    key = new_key()
    zombie = take(redis_cluster, key, -1, run=b"zombie")
    newer = take(redis_cluster, key, -1, run=b"newer")
    with pytest.raises(CallRefused, match="FENCED 2"):
        take(redis_cluster, key, zombie, run=b"zombie")
    with pytest.raises(CallRefused, match="FENCED 2"):
        take(redis_cluster, key, zombie)
    assert take(redis_cluster, key, newer, run=b"newer") == 3


def test_a_run_whose_reply_was_lost_is_not_fenced_by_itself(redis_cluster):
    key = new_key()
    held = take(redis_cluster, key, -1, run=b"one")
    take(redis_cluster, key, held, run=b"one")
    assert take(redis_cluster, key, held, run=b"one") == 3


def test_a_counter_that_is_not_a_number_is_corrupt(redis_cluster):
    key = new_key()
    with t.client(redis_cluster) as client:
        client.set(key, "rubbish")
    with pytest.raises(CallRefused, match="CORRUPT"):
        take(redis_cluster, key, -1)
    with pytest.raises(CallRefused, match="CORRUPT"):
        call(redis_cluster, library.LAYOUT, [key, new_key(), new_key()], b"1", b"a", b"b")


def test_layout_and_writer_s_record_change_together_and_an_empty_one_stays(redis_cluster):
    keys = [new_key(), new_key("layout"), new_key("topic")]
    epoch = b"%d" % take(redis_cluster, keys[0], -1, run=b"one")
    with t.client(redis_cluster) as client:
        for layout, topic, expected in [
            (b"a", b"b", [b"a", b"b"]),
            (b"", b"c", [b"a", b"c"]),
            (b"d", b"", [b"d", b"c"]),
            (b"", b"", [b"d", b"c"]),
        ]:
            call(redis_cluster, library.LAYOUT, keys, epoch, layout, topic)
            assert client.mget_nonatomic(keys[1:]) == expected


def test_a_call_that_is_executed_late_does_not_take_back_a_later_change_of_its_run(redis_cluster):
    keys = [new_key(), new_key("layout"), new_key("topic")]
    epoch = take(redis_cluster, keys[0], -1, run=b"one")

    def record(revision: int, of: int = epoch) -> bytes:
        return TopicRecord("id", (0,), Owner("host", 7, 1, of), revision=revision).to_json()

    with t.client(redis_cluster) as client:
        for layout, sent, expected in [
            (b"first", record(1), [b"first", record(1)]),
            (b"second", record(2), [b"second", record(2)]),
            (b"first", record(1), [b"second", record(2)]),
            (b"again", record(2), [b"again", record(2)]),
            (b"next run", record(1, epoch + 1), [b"next run", record(1, epoch + 1)]),
        ]:
            call(redis_cluster, library.LAYOUT, keys, b"%d" % (epoch + 1), layout, sent)
            assert client.mget_nonatomic(keys[1:]) == expected


def test_an_older_run_changes_no_layout(redis_cluster):
    keys = [new_key(), new_key("layout"), new_key("topic")]
    for _ in range(2):
        take(redis_cluster, keys[0], -1)
    with pytest.raises(CallRefused, match="FENCED 2"):
        call(redis_cluster, library.LAYOUT, keys, b"1", b"a", b"b")
    with t.client(redis_cluster) as client:
        assert client.mget_nonatomic(keys[1:]) == [None, None]


def libraries_of(node: Redis) -> set[str]:
    return {each[each.index(b"library_name") + 1].decode() for each in node.function_list("*keylane*")}


@pytest.fixture(name="node")
def _node(redis_cluster):
    """The primary of the topics' records."""
    with t.client(redis_cluster) as client:
        found = client.get_node_from_key("{keylane}")
    with Redis(found.host, found.port) as node:
        yield node


def test_a_changed_library_has_other_names_and_stands_beside_the_old_one(redis_cluster, node):
    _, _, source = library.CODE.split(b"\n", 2)
    version, code = library.named(source)
    assert (version, code) == (library.VERSION, library.CODE)
    other, changed = library.named(
        source.replace(b"local epoch = math.max(", b"local epoch = 100 + math.max(")
    )
    assert other != version
    take(redis_cluster, new_key(), -1)
    node.function_load(changed.decode())
    try:
        epoch = call(redis_cluster, f"keylane_epoch_{other}".encode(), [new_key()], b"-1", b"0", b"")
        assert epoch == 101
        assert take(redis_cluster, new_key(), -1) == 1
        assert {f"keylane_{version}", f"keylane_{other}"} <= libraries_of(node)
    finally:
        node.function_delete(f"keylane_{other}")


def test_a_start_removes_the_libraries_of_other_versions_and_none_of_others(redis_cluster, node):
    take(redis_cluster, new_key(), -1)
    kept = {"keylane_theirs", "their_keylane"}
    for name in ("keylane", "keylane_0123abcd", *kept):
        node.function_load(f"#!lua name={name}\nredis.register_function('f_{name}', function() return 1 end)")
    cluster = Cluster(t.settings(redis_cluster))
    cluster.refresh(Deadline.after_ms(5000, t.CLOCK))
    remove_old_libraries(cluster, t.CLOCK)
    cluster.close()
    assert libraries_of(node) == {f"keylane_{library.VERSION}", *kept}
    for name in kept:
        node.function_delete(name)


def test_a_writer_whose_library_was_removed_is_fenced_all_the_same(redis_cluster):
    """As a job of an older version that wakes up: it loads its library again."""
    lane = LaneTarget.of(Layout(f"library-{next(NUMBERS)}", 9), 4, 0)
    old, new = (t.writer(redis_cluster, epoch) for epoch in (1, 2))
    for writer in (old, new):
        writer.open([(lane, 0)])
    with t.client(redis_cluster) as client:
        found = client.get_node_from_key(lane.watermark_key)
        Redis(found.host, found.port).function_delete(f"keylane_{library.VERSION}")
    old.apply(lane, OffsetRange(0, 1))
    with pytest.raises(Fenced, match="is written by epoch 2 now"):
        old.flush()
