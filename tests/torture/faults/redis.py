"""Faults of the Redis Cluster: nodes that die, hang, lose data or memory, or change their roles and slots."""

from __future__ import annotations

import contextlib
import shutil
import time
from typing import TYPE_CHECKING

import redis
from tests.servers.own import SlotMove
from tests.torture.faults.finds import find_written
from tests.torture.faults.world import stopped
from tests.torture.links import Mode
from tests.torture.stack import KEYLANE_SLOT, REPAIRED_WITHIN_S, Move, is_primary, settle, wait_until

from keylane.adapters.redis.replicas import UNHEALTHY_FOR_S
from keylane.state import codec
from keylane_spark.lanes.lane import lanes_of

if TYPE_CHECKING:
    from tests.torture.faults.world import World
    from tests.torture.schedule import Event

    from keylane_local.servers.redis_node import RedisNode
    from keylane_spark.lanes.lane import LaneTarget

_FAILOVER_S = 6
"""Redis gives up a manual failover after 5 s."""
_KEYS_AT_ONCE = 100
_MISSES_WITHIN_S = 15
_MOVED_WITHIN_S = 60
_LANES_WITHIN_S = 60


def kill_primary(world: World, event: Event) -> None:
    with world.trouble(event.kind, event.shard):
        primary, replica = world.stack.shard(event.shard)
        primary.kill()
        _take_over(world, primary, replica)


def pause_primary(world: World, event: Event) -> None:
    """For a moment, or until its replica has taken over: it wakes up as a primary that is none."""
    with world.trouble(event.kind, event.shard):
        primary, replica = world.stack.shard(event.shard)
        process = primary.program.process
        assert process
        with stopped([process]):
            if event.variant:
                time.sleep(event.seconds)
            else:
                _wait_promoted(replica)
        world.stack.cluster.wait_ready(REPAIRED_WITHIN_S)


def lose_writes(world: World, event: Event) -> None:
    """Cut off the replica, wait until it lacks records, then kill the primary."""
    with world.trouble(event.kind, event.shard):
        primary, replica = world.stack.shard(event.shard)
        _cut_off(world, event, primary, replica)
        primary.kill()
        _wait_promoted(replica)
        _reconnect(replica)
        _take_over(world, primary, replica)


def stale_replica(world: World, event: Event) -> None:
    """Cut off the replica; once it lacks records, let readers reach nothing but it.

    `variant`: the primary hangs for a moment, again and again, while records are found as of their position.
    """
    primary, replica = world.stack.shard(event.shard)
    with world.trouble(event.kind, event.shard):
        _cut_off(world, event, primary, replica)
        try:
            if event.variant:
                find_written(world, event.shard, primary)
            else:
                with world.stack.reader_links.set(primary.port, Mode.CUT):
                    time.sleep(event.seconds * 3)
        finally:
            _reconnect(replica)
        world.stack.cluster.wait_ready(REPAIRED_WITHIN_S)
        time.sleep(UNHEALTHY_FOR_S)


def _cut_off(world: World, event: Event, primary: RedisNode, replica: RedisNode) -> None:
    """Keep the replica from catching up, and wait until it lacks records.

    An event that begins after the schedule's last write meets none: then the replica lacks nothing.
    """
    replica.command("CONFIG", "SET", "masterauth", "wrong")
    replica.command("CONFIG", "SET", "masteruser", "nobody")
    primary.command("CLIENT", "KILL", "TYPE", "replica")
    with contextlib.suppress(TimeoutError):
        wait_until(
            lambda: _misses_records(world, event.shard, primary, replica),
            _MISSES_WITHIN_S,
            "the replica lacks no record",
        )


def _reconnect(replica: RedisNode) -> None:
    replica.command("CONFIG", "SET", "masteruser", "")
    replica.command("CONFIG", "SET", "masterauth", "")


def _misses_records(world: World, shard: int, primary: RedisNode, replica: RedisNode) -> bool:
    """Whether a lane of the primary has records that the replica will never get."""
    if replica.facts()["master_link_status"] == "up":
        return False
    keys = [lane.watermark_key for lane in _lanes(world, shard)]
    return any(
        before is not None
        and now is not None
        and codec.decode_watermark(before).next_offset < codec.decode_watermark(now).next_offset
        for before, now in zip(_read(replica, keys), _read(primary, keys), strict=True)
    )


def _lanes(world: World, shard: int) -> list[LaneTarget]:
    return [
        lane
        for layout in world.stack.layouts().values()
        for lane in lanes_of(layout)
        if world.stack.shard_of(lane.slot) == shard
    ]


def empty_redis(world: World, event: Event) -> None:
    _empty(world, event, *range(world.stack.cluster.shards))


def empty_shard(world: World, event: Event) -> None:
    """Empty a shard that does not have `{keylane}`."""
    shards = world.stack.cluster.shards
    shard = event.shard
    if shard == world.stack.shard_of(KEYLANE_SLOT):
        shard = (shard + 1 + event.variant) % shards
    _empty(world, event, shard)


def empty_keylane_shard(world: World, event: Event) -> None:
    """Empty only the shard of `{keylane}`, which has layouts, epochs and topic records."""
    _empty(world, event, world.stack.shard_of(KEYLANE_SLOT))


def _empty(world: World, event: Event, *shards: int) -> None:
    with world.trouble(event.kind, *shards, lost_data=True):
        for shard in shards:
            world.stack.shard(shard)[0].command("FLUSHALL")
    # The state is complete again at the end of the schedule.


def lose_shard(world: World, event: Event) -> None:
    """Kill a shard's primary and replica; both come back without their data."""
    with world.trouble(event.kind, event.shard, lost_data=True, unreachable=True):
        nodes = world.stack.shard(event.shard)
        for node in nodes:
            node.kill()
        for node in nodes:
            for folder in node.home.glob("appendonlydir*"):
                shutil.rmtree(folder)
            for dump in node.home.glob("*.rdb"):
                dump.unlink()
        for node in nodes:
            _restart(node)
        world.stack.cluster.wait_ready(REPAIRED_WITHIN_S)


def kill_two_primaries(world: World, event: Event) -> None:
    """Kill two primaries at once: without a majority no replica is promoted, yet all shards are read."""
    shards = event.shard, (event.shard + 1) % world.stack.cluster.shards
    with world.trouble(event.kind, *shards):
        primaries = [world.stack.shard(shard)[0] for shard in shards]
        for node in primaries:
            node.kill()
        time.sleep(event.seconds * 5)  # some of it after the last node knows that the cluster is down
        for node in primaries:
            _restart(node)
        world.stack.cluster.wait_ready(REPAIRED_WITHIN_S)


def fail_over(world: World, event: Event) -> None:
    """A manual failover; or a takeover, which does not wait for what the replica lacks."""
    with world.trouble(event.kind, event.shard):
        _, replica = world.stack.shard(event.shard)
        for _ in range(5):
            replica.command("CLUSTER", "FAILOVER", *(["TAKEOVER"] if event.variant else []))
            with contextlib.suppress(TimeoutError):
                wait_until(lambda: is_primary(replica), _FAILOVER_S, "the replica was not promoted")
                break
        world.stack.cluster.wait_ready(REPAIRED_WITHIN_S)


def flush_functions(world: World, event: Event) -> None:
    """Remove the function library from one primary, or from all. Reads need no function."""
    shards = range(world.stack.cluster.shards) if event.variant else (event.shard,)
    for shard in shards:
        world.stack.shard(shard)[0].command("FUNCTION", "FLUSH")


def run_out_of_memory(world: World, event: Event) -> None:
    """Let a primary refuse writes for lack of memory. Reads go on."""
    primary, _ = world.stack.shard(event.shard)
    primary.command("CONFIG", "SET", "maxmemory", "1mb")
    try:
        time.sleep(event.seconds * 4)
    finally:
        primary.command("CONFIG", "SET", "maxmemory", 0)


def reshard(world: World, event: Event) -> None:
    """Move a lane's slot to another shard, key by key, and back. Reads go on, and no lane goes back."""
    # Where Redis was just emptied there are no layouts for a while.
    wait_until(lambda: bool(_lanes(world, event.shard)), _LANES_WITHIN_S, "the shard has lanes")
    slot = world.source.choice(_lanes(world, event.shard)).slot
    move = SlotMove(world.stack.cluster, slot)
    for turn in range(2):
        if turn:
            move.turn_round()
        move.begin()
        moving = Move(time.monotonic())
        world.stack.moves.append(moving)
        with redis.Redis(port=move.source.port, socket_timeout=5) as client:
            # In two words: under one name the client decodes the keys, and those of views are no text.
            until_s = time.monotonic() + _MOVED_WITHIN_S
            while keys := client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, _KEYS_AT_ONCE):
                move.move(*keys)
                assert time.monotonic() < until_s, f"slot {slot} still has {len(keys)} keys: {keys[0]!r}"
        move.finish()
        wait_until(lambda: _agree(world, slot), REPAIRED_WITHIN_S, "the nodes agree on the slot's owner")
        moving.ended_s = time.monotonic()
        time.sleep(event.seconds)
    world.stack.cluster.wait_ready(REPAIRED_WITHIN_S)


def _agree(world: World, slot: int) -> bool:
    """Whether all nodes name the same owner of a slot."""
    owners = set()
    for node in world.stack.cluster.nodes:
        for first, last, primary, *_ in node.command("CLUSTER", "SLOTS"):
            if int(first) <= slot <= int(last):
                owners.add(int(primary[1]))
    return len(owners) == 1


def _take_over(world: World, primary: RedisNode, replica: RedisNode) -> None:
    _wait_promoted(replica)
    _restart(primary)
    world.stack.cluster.wait_ready(REPAIRED_WITHIN_S)


def _restart(node: RedisNode) -> None:
    node.start()
    wait_until(node.answers, REPAIRED_WITHIN_S, "a killed node did not restart")
    settle(node)


def _wait_promoted(replica: RedisNode) -> None:
    wait_until(lambda: is_primary(replica), REPAIRED_WITHIN_S, "the replica was not promoted")


def _read(node: RedisNode, keys: list[bytes]) -> list[bytes | None]:
    """The values of keys on one node, which may be a replica."""
    with redis.Redis(port=node.port, socket_timeout=5) as client:
        pipeline = client.pipeline(transaction=False)
        pipeline.execute_command("READONLY")
        for key in keys:
            pipeline.get(key)
        return pipeline.execute()[1:]
