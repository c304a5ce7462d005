"""The library's functions that fence a topic's layout, called as the writer calls them."""

from __future__ import annotations

import itertools

import pytest
from tests.support import lanes as t

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.resp import encode_command
from keylane_spark.adapters import function_library as library
from keylane_spark.adapters.function_library import CallRefused, FunctionLibrary

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


def test_an_older_run_changes_no_layout(redis_cluster):
    keys = [new_key(), new_key("layout"), new_key("topic")]
    for _ in range(2):
        take(redis_cluster, keys[0], -1)
    with pytest.raises(CallRefused, match="FENCED 2"):
        call(redis_cluster, library.LAYOUT, keys, b"1", b"a", b"b")
    with t.client(redis_cluster) as client:
        assert client.mget_nonatomic(keys[1:]) == [None, None]
