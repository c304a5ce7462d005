"""The guards of records in other partitions than their keys'."""

from __future__ import annotations

from tests.torture.guards.mutant import Mutant, Replacement, mutant, rare_mutant

_LANES = "spark/keylane_spark/lanes/library/lanes.lua"
_WATERMARK = "spark/keylane_spark/lanes/library/watermark.lua"
_WRITES = "spark/keylane_spark/lanes/library/writes.lua"
_MERGE = "spark/keylane_spark/lanes/library/merge.lua"
_TRANSACTIONS = "spark/keylane_spark/lanes/chunk_transactions.py"
_ORDERED = "spark/keylane_spark/rows/ordered_writes.py"
_STARTS = "spark/keylane_spark/lanes/lane.py"
_CHUNKS = "spark/keylane_spark/stream/partition_chunks.py"

MUTANTS = (
    # A lane that failed over since it was opened takes strays, and is marked complete, though it lost some.
    mutant(
        "lineage",
        _WATERMARK,
        "return redis.call('GET', key_of(watermark_key, tonumber(prefix), 'l')) ~= lineage()",
        "return false",
        focus="lose-writes",
        topics=("mixed",),
        test="tests/integration/lanes/test_strays.py::test_a_lane_that_has_failed_over_takes_no_stray_until_it_is_opened_again",
    ),
    # A lane that lacks strays which it was given does not get them again.
    mutant(
        "taken and given",
        _STARTS,
        "            if has < to:\n",
        "            if False:\n",
        focus="lose-writes",
        topics=("mixed",),
        test="tests/integration/lanes/test_strays.py::test_a_lane_that_has_lost_strays_is_named_with_what_must_be_read_again",
    ),
    # A partition does not note which lanes it gave strays to.
    mutant(
        "given",
        _LANES,
        "  in_slices('HSET', given, changed)\n",
        "",
        focus="lose-writes",
        topics=("mixed",),
        test="tests/integration/lanes/test_strays.py::test_a_lane_that_has_lost_strays_is_named_with_what_must_be_read_again",
    ),
    # Between partitions only the numbers of the partitions decide.
    mutant(
        "order timestamps",
        _MERGE,
        "elseif order ~= entry.order then",
        "elseif false then",
        topics=("mixed",),
        test="tests/integration/lanes/test_strays.py::test_of_two_strays_the_newer_wins_in_whatever_order_they_come",
    ),
    # A tombstone leaves nothing: older records from other partitions bring the key back.
    Mutant(
        "tombstone markers",
        (
            Replacement(_MERGE, "elseif rules.marker_ms == '0' then", "elseif true then"),
            Replacement(_WRITES, "if marker_ms == '0' then", "if true then"),
            Replacement(_ORDERED, "        if lane.marker_ms:\n", "        if False:\n"),
        ),
        topics=("mixed",),
        test="tests/integration/lanes/test_strays.py::test_what_a_stray_s_tombstone_deleted_does_not_come_back",
    ),
    # A lane that has strays writes its own records without comparing them.
    Mutant(
        "has strays",
        (
            Replacement(
                _LANES,
                "if args[8 + COMPARED] == '1' or bit.band(flags, HAS_STRAYS) ~= 0 then",
                "if args[8 + COMPARED] == '1' then",
            ),
            Replacement(_TRANSACTIONS, "if watermark.has_strays:", "if False:"),
        ),
        topics=("mixed",),
        test="tests/integration/lanes/test_strays.py::test_the_lane_s_own_record_wins_a_tie_and_loses_to_a_newer_stray",
    ),
    # A lane takes strays again that it had, and with them what was deleted since.
    mutant(
        "strays that a lane has",
        _LANES,
        "  if before < to then\n    merge(keys[1], args, 2, 13, before, true)\n",
        "  merge(keys[1], args, 2, 13, 0, true)\n  if before < to then\n",
        focus="empty-shard",
        topics=("mixed",),
        configuration="forgetful",
        test="tests/integration/lanes/test_strays.py::test_strays_that_are_read_again_bring_back_nothing_that_was_deleted_since",
    ),
    # A partition's watermark moves past strays that have not arrived.
    rare_mutant(
        "strays before the watermark",
        _CHUNKS,
        "        self._sender.wait_for_strays()\n",
        "",
        test="tests/integration/lanes/test_strays.py::test_a_read_that_waits_for_a_stray_gets_it_though_its_shard_is_slow",
    ),
)
