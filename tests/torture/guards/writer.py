"""The guards of what a writer sends to a lane."""

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
        test="tests/integration/lanes/test_tasks.py::test_a_task_whose_rows_end_early_moves_no_watermark_past_them",
    ),
    # The driver takes a batch for written though a task has not reported its ranges.
    rare_mutant(
        "ranges that nobody reports",
        _LOG_RANGES,
        "!= each.end:",
        "is not None and False:",
        # Spark fails a task whose worker it has cut off, so the torture can't lose the report alone.
        test="tests/integration/lanes/test_log_ranges.py::test_a_batch_of_which_a_task_ended_early_is_not_taken_for_written",
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
)
