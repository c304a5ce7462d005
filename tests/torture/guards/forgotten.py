"""The guards against what Kafka forgets: by retention, compaction, and with added partitions."""

from __future__ import annotations

from tests.torture.guards.mutant import mutant, rare_mutant

_OPEN_LANES = "spark/keylane_spark/serving/open_lanes.py"
_MISSED = "spark/keylane_spark/serving/missed_deletions.py"
_DELETIONS = "spark/keylane_spark/generations/deletions.py"
_PLAN = "spark/keylane_spark/generations/plan.py"
_EPOCHS = "spark/keylane_spark/generations/epochs.py"
_FORGOTTEN = "tests/integration/model/test_forgotten_records.py"

MUTANTS = (
    # Lanes that were last complete before compaction removed tombstones count as any others.
    rare_mutant(
        "deletions that were missed",
        _DELETIONS,
        "if kept_ms is not None and self.now_ms - since_ms > self._bound_ms(kept_ms):",
        "if False:",
        test=f"{_FORGOTTEN}::test_lanes_that_were_complete_before_compaction_removed_tombstones_are_incomplete_and_built_again",
    ),
    # A generation that was built too slowly for the tombstones is switched to all the same.
    rare_mutant(
        "deletions that a rebuild missed",
        _MISSED,
        "            given_up = {lane.topic for lane in late}\n",
        "",
        test=f"{_FORGOTTEN}::test_a_generation_that_was_not_complete_in_time_is_given_up_for_another",
    ),
    # Only the lane of a partition that lost records unread is incomplete, though they may have been strays.
    rare_mutant(
        "strays that were removed unread",
        _OPEN_LANES,
        "        found.incomplete |= _spread_incomplete(self.writer, starts, found.strays | mixed)\n",
        "",
        test=f"{_FORGOTTEN}::test_strays_that_retention_removed_unread_leave_every_lane_incomplete_that_could_have_taken_them",
    ),
    # A partition that was added began where its log begins when the job first reads it.
    rare_mutant(
        "added partitions",
        _EPOCHS,
        "return earlier + (0,) * (len(state.oldest) - len(earlier))",
        "return earlier + state.oldest[len(earlier) :]",
        test=f"{_FORGOTTEN}::test_records_of_an_added_partition_that_were_removed_before_its_first_reading_leave_lanes_incomplete",
    ),
    # Listeners of a topic that missed deletions are not sent what the log no longer says.
    mutant(
        "incarnation of what missed deletions",
        _PLAN,
        "(wanted if has_others else serving).incarnation",
        "kept.incarnation",
        focus="miss-deletions",
        topics=("plain",),
        test="tests/unit/spark/test_generations_plan.py::test_a_state_that_may_hold_deleted_keys_is_built_again_in_its_own_layout_while_it_serves",
    ),
)
