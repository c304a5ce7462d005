"""The guards of what a writer sends to a lane, of records in other partitions, and of what a lane claims."""

from __future__ import annotations

from tests.torture.guards.mutant import Mutant, Replacement, mutant, rare_mutant

_LANES = "spark/keylane_spark/lanes/library/lanes.lua"
_WATERMARK = "spark/keylane_spark/lanes/library/watermark.lua"
_FOLDING = "spark/keylane_spark/rows/fold.py"
_TRANSACTIONS = "spark/keylane_spark/lanes/chunk_transactions.py"
_TASKS = "spark/keylane_spark/stream/tasks.py"
_LOG_RANGES = "spark/keylane_spark/stream/log_ranges.py"
_FULL = "spark/keylane_spark/lanes/library/full.lua"
_PIPELINE = "spark/keylane_spark/lanes/call_pipeline.py"
_IN_TROUBLE = "tests/integration/lanes/test_lanes_in_trouble.py"
_WRITES = "spark/keylane_spark/lanes/library/writes.lua"
_MERGE = "spark/keylane_spark/lanes/library/merge.lua"
_ORDERED = "spark/keylane_spark/rows/ordered_writes.py"
_STARTS = "spark/keylane_spark/lanes/lane.py"
_CHUNKS = "spark/keylane_spark/stream/partition_chunks.py"
_HEARTBEAT = "spark/keylane_spark/stream/heartbeat.py"
_FRESHNESS = "spark/keylane_spark/stream/freshness.py"
_ADMIN = "spark/keylane_spark/log/kafka_admin.py"
_CLAIMS = "spark/keylane_spark/lanes/claim_clock.py"
_READING = "spark/keylane_spark/stream/reading_query.py"

MUTANTS = (
    # Records that are in the lane already are applied again, and the watermark moves to the chunk's end.
    Mutant(
        "offset guard",
        (
            Replacement(_LANES, "next_offset < to and 16 or #args + 1\n", "16\n"),
            Replacement(
                _LANES, "merge(keys[1], args, 8, first, next_offset,", "merge(keys[1], args, 8, first, 0,"
            ),
            Replacement(_LANES, "  elseif next_offset < to then\n    if args[7]", "  else\n    if args[7]"),
            Replacement(
                _LANES, "  if next_offset < to then\n    next_offset = to", "  do\n    next_offset = to"
            ),
            Replacement(_TRANSACTIONS, "<= watermark.next_offset < covered.end", "<= watermark.next_offset"),
        ),
        test="tests/integration/lanes/test_lanes.py::test_whatever_is_repeated_the_state_is_the_fold_of_the_log",
    ),
    # Any writer is accepted, whatever its epoch.
    Mutant(
        "epoch check",
        (
            Replacement(_WATERMARK, "if owner > epoch then", "if false then"),
            Replacement(_TRANSACTIONS, "if watermark.epoch != self._epoch or not ", "if not "),
        ),
        focus="zombie",
        test="tests/integration/lanes/test_lanes.py::test_an_older_epoch_is_refused_and_changes_nothing",
    ),
    # A chunk that begins beyond the lane's next offset is accepted: what a failover lost stays lost.
    Mutant(
        "repair",
        (
            Replacement(_LANES, "if next_offset < from then", "if false then"),
            Replacement(
                _TRANSACTIONS, "not covered.begin <= watermark.next_offset", "not watermark.next_offset"
            ),
        ),
        focus="lose-writes",
        test="tests/integration/lanes/test_lanes.py::test_a_chunk_that_does_not_follow_is_refused_and_so_is_all_behind_it",
    ),
    # Within a chunk all sets come after all tombstones, as in a sink that sends deletes first.
    mutant(
        "tombstone order",
        _FOLDING,
        "    last: Mask = repeats.following == len(timestamps_ms)\n",
        "    by_kind = np.lexsort((~tombstones, repeats.codes))\n"
        "    last: Mask = np.zeros(len(tombstones), np.bool_)\n"
        "    ends = np.append(repeats.codes[by_kind][1:] != repeats.codes[by_kind][:-1], True)\n"
        "    last[by_kind[ends]] = True\n",
        test="tests/unit/spark/test_chunks.py::test_after_each_chunk_the_state_is_the_fold_of_the_log_up_to_there",
    ),
    # What a transaction relies on may change before it is carried out.
    mutant(
        "watch",
        _TRANSACTIONS,
        'return encode_command(b"WATCH", key) +',
        'return encode_command(b"EXISTS", key) +',
        focus="zombie",
        topics=("plain",),
        test="tests/integration/lanes/test_chunk_transactions.py::test_a_newer_writer_between_two_chunks_fences_the_second",
    ),
    # A task takes the end of its rows for the end of its range, though Spark has ended them early.
    mutant(
        "rows that end early",
        _TASKS,
        "batch_writer.finish_reached()",
        "batch_writer.finish(batch_writer.results)",
        focus="cut-rows",
        topics=("timed",),
        configuration="timed",
        test="tests/unit/spark/test_tasks.py::test_a_task_whose_rows_end_early_moves_no_watermark_past_them",
    ),
    # The driver takes a batch for written though a task has not reported its ranges.
    rare_mutant(
        "ranges that nobody reports",
        _LOG_RANGES,
        "!= each.end:",
        "is not None and False:",
        # Spark fails a task whose worker it has cut off, so the torture can't lose the report alone.
        test="tests/unit/spark/test_log_ranges.py::test_a_task_that_ended_before_its_range_did_is_not_believed",
    ),
    # A full node takes no deletion, nor anything else that makes room.
    rare_mutant(
        "functions on a full node",
        _WATERMARK,
        "local FULL = { 'allow-oom' }",
        "local FULL = {}",
        test=f"{_IN_TROUBLE}::test_a_full_node_takes_deletions_and_what_needs_no_more_room_and_stays_fresh",
    ),
    # A full node takes chunks that need more room than they give free: it grows on, past its `maxmemory`.
    rare_mutant(
        "room on a full node",
        _FULL,
        "return growth > 0",
        "return false",
        test=f"{_IN_TROUBLE}::test_a_full_node_delays_the_writer_and_costs_no_record_and_no_order",
    ),
    # A shard that takes no writes, as with MISCONF, stops the job instead of its own lanes.
    rare_mutant(
        "parked lanes",
        _PIPELINE,
        "        if self._parked is None:\n            raise error\n        if is_of_slot",
        "        raise error\n        if is_of_slot",
        test="tests/integration/job/test_lost_shard.py"
        "::test_a_node_that_can_not_save_or_is_full_is_read_waited_for_and_written_again_when_it_can",
    ),
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
    # A read that waits for a stray takes it for there where a failover has taken it back.
    mutant(
        "strays that were lost, in reads that wait",
        "layers/keylane/python/keylane/query/latest.py",
        "next_offset = reached_offset(begin_reading(store, topic, deadline), position.partition, [lane])",
        "assert lane",
        focus="lose-writes",
        topics=("mixed",),
        test="tests/unit/query/test_latest.py::test_a_stray_that_a_failover_took_back_is_waited_for_until_it_is_there_again",
    ),
    # So does a find.
    rare_mutant(
        "strays that were lost, in finds that wait",
        "layers/keylane/python/keylane/query/find.py",
        "if first is None or first.gave_strays:",
        "if False:",
        test="tests/unit/query/test_find_position.py::test_a_stray_that_a_failover_took_back_is_an_error_and_not_a_page_without_it",
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
    # A lane of a topic with strays is marked as complete as its own partition is.
    mutant(
        "slowest partition",
        _FRESHNESS,
        "min(bounds.get(topic, complete_ms), complete_ms)",
        "max(bounds.get(topic, complete_ms), complete_ms)",
        topics=("mixed",),
        test="tests/unit/spark/test_freshness.py::test_a_topic_with_strays_is_complete_as_of_when_its_last_partition_is",
    ),
    # The heartbeat asks for the ends of the log before it looks at the clock.
    Mutant(
        "observe before ask",
        (
            Replacement(
                _HEARTBEAT,
                "before, seen_ms = self._query.positions, self._claim_clock.now_ms()",
                "before = self._query.positions",
            ),
            Replacement(
                _HEARTBEAT,
                "        fallen = self._freshness.observe(seen_ms, answered.offsets, before)\n",
                "        seen_ms = self._claim_clock.now_ms()\n"
                "        fallen = self._freshness.observe(seen_ms, answered.offsets, before)\n",
            ),
        ),
        focus="part-kafka",
        test="tests/integration/job/test_age.py::test_a_lane_is_complete_as_of_a_time_before_the_broker_was_asked",
    ),
    # Lanes are complete up to the last stable offset, which hides acknowledged records behind it.
    Mutant(
        "high watermark",
        (
            Replacement(_ADMIN, "LATEST, READ_UNCOMMITTED, At,", "LATEST, READ_COMMITTED, At,"),
            Replacement(
                _ADMIN,
                "AdminSession.list_offsets, queries, READ_UNCOMMITTED",
                "AdminSession.list_offsets, queries, READ_COMMITTED",
            ),
        ),
        focus="hang-transaction",
        topics=("plain",),
        test="tests/integration/job/test_age.py::test_an_acknowledged_record_behind_an_open_transaction_is_not_claimed_before_it_is_read",
    ),
    # The driver's clock alone says as of when a lane is complete.
    Mutant(
        "claim clock",
        (
            Replacement(_WATERMARK, "math.min(complete, time_ms())", "complete"),
            Replacement(_CLAIMS, "return min(wall_ms, math.floor", "return max(wall_ms, math.floor"),
        ),
        focus="clock-jump",
        topics=("plain",),
        test="tests/integration/lanes/test_lanes.py::test_no_call_leaves_a_claim_of_the_future_whatever_was_sent_or_stored",
    ),
    # A batch claims that a lane is complete which may lack strays, since Redis lost them and what says so.
    rare_mutant(
        "claims of lacking lanes",
        _READING,
        "left_to_it = self.lacking | self.doubted",
        "left_to_it: set[TopicPartition] = set()",
        test="tests/integration/model/test_claims.py::test_a_batch_claims_nothing_of_a_lane_that_may_lack_strays",
    ),
)
