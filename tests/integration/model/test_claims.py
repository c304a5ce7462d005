"""Claims of lanes that are complete, where Redis lost what says that they are not: with the model's log."""

from __future__ import annotations

from tests.model.log import Kind

OWN, STRAY = Kind(0, True), Kind(1, True)


def test_a_batch_claims_nothing_of_a_lane_that_may_lack_strays(world):
    """Both shards were emptied, and with them all that said that the topic has strays."""
    world.write(OWN)
    world.write(STRAY)
    world.settle()
    for tag in world.tags:
        world.lose(tag, None)
    world.open()
    assert not world.query.strays
    world.beat()
    world.read(0)
    assert world.watermark(0).next_offset == 1
    world.check()  # the key is its own record, and the stray, which is newer, is unread
    assert world.watermark(0).complete_as_of_ms == 0
    world.settle()
    assert world.watermark(0).complete_as_of_ms > 0
