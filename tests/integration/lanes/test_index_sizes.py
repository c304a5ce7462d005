"""The sizes of indexes of fields, as the job measures them."""

from __future__ import annotations

import contextlib

import pytest
from tests.support import lanes as t
from tests.support.builders import a_layout
from tests.support.fakes import FakeTime
from tests.support.served import Served

from keylane.adapters.redis.cluster import Cluster
from keylane.model.records import Options
from keylane_spark.lanes.index_sizes import INTERVAL_S, IndexSizes

FIELDS = (("amount", "number"), ("status", "text"), ("tags", "texts"))
BOTH = (("by_status", ("status", "amount")),)


@pytest.mark.parametrize("parts", [1, 3])
def test_an_index_has_an_entry_for_each_value_of_a_record_in_any_lane_and_part(
    redis_cluster: str, parts: int
):
    with contextlib.closing(Cluster(t.settings(redis_cluster))) as cluster:
        served = Served(redis_cluster, cluster, stripes=2, index=parts, fields=FIELDS, indexes=BOTH)
        for number in range(20):
            served.put(b"k%d" % number, b'{"amount": %d, "status": "open", "tags": ["a", "b"]}' % number)
        served.put(b"k0", b'{"status": "paid"}')
        served.put(b"k1", None)
    plain, time = a_layout(), FakeTime()
    layouts = {layout.topic: layout for layout in (plain, served.layout)}
    with contextlib.closing(IndexSizes(t.settings(redis_cluster), layouts, time.clock)) as sizes:
        expected = {"amount": 18, "status": 19, "tags": 36, "by_status": 18}
        assert sizes.measure() == {(served.topic, index): size for index, size in expected.items()}
        assert sizes.measure() == {}
        time.move(INTERVAL_S)
        assert len(sizes.measure()) == 4


def test_without_redis_nothing_is_measured_and_nothing_is_raised():
    layout = a_layout(options=Options(index=1, fields=FIELDS))
    sizes = IndexSizes(t.settings("127.0.0.1:1"), {layout.topic: layout}, t.CLOCK)
    assert sizes.measure() == {}
    sizes.close()
