"""The guards of layouts and generations, and against what Kafka forgets: by retention, compaction, and with
added partitions."""

from __future__ import annotations

from tests.torture.guards.mutant import Mutant, Replacement, mutant, rare_mutant

_LINEAGE = "spark/keylane_spark/generations/lineage.py"
_ELECTIONS = "spark/keylane_spark/serving/elections.py"
_LAYOUTS = "layers/keylane/python/keylane/query/layouts.py"
_SWITCH = "spark/keylane_spark/serving/switch.py"
_LANE_READER = "spark/keylane_spark/lanes/lane_reader.py"
_MERGE = "spark/keylane_spark/lanes/library/merge.lua"
_GENERATIONS = "tests/integration/job/test_generations.py"
_CARRIED = "tests/integration/lanes/test_carried_deletions.py"
_LAYOUT_FUNCTION = "spark/keylane_spark/lanes/library/layouts.lua"
_MARKS = "        self._supersede(layouts)\n"
_SWITCHES = (
    "        for topic, layout in layouts.items():\n"
    "            old = self._openings.serving.writer.layouts[topic].generation\n"
    "            self._ownership.switch(topic, old, layout)\n"
)
_OPEN_LANES = "spark/keylane_spark/serving/open_lanes.py"
_MISSED = "spark/keylane_spark/serving/missed_deletions.py"
_DELETIONS = "spark/keylane_spark/generations/deletions.py"
_PLAN = "spark/keylane_spark/generations/plan.py"
_EPOCHS = "spark/keylane_spark/generations/epochs.py"
_FORGOTTEN = "tests/integration/model/test_forgotten_records.py"

MUTANTS = (
    # A log that has grown past what was read before anyone looked is taken for the log that was read.
    mutant(
        "leader epochs",
        _LINEAGE,
        "        for partition, found in self.ask(asked).items():\n            epoch",
        "        for partition, found in self.ask({}).items():\n            epoch",
        focus="lose-log",
        topics=("plain",),
        test="tests/unit/spark/test_elections.py::test_a_state_is_found_truncated_if_and_only_if_the_log_has_other_records",
    ),
    # A query goes on with a new leader, whatever its log has.
    mutant(
        "new leaders",
        _ELECTIONS,
        "        for topic, why in check.find_truncated().items():\n",
        "        for topic, why in dict[str, str]().items():\n",
        focus="lose-log",
        topics=("plain",),
        test="tests/unit/spark/test_elections.py::test_a_leader_that_lacks_what_the_lanes_hold_is_not_followed",
    ),
    # Readers know the layout in the part of the cluster that has the first of its copies, and no other.
    mutant(
        "copies of layouts",
        _LAYOUTS,
        "for tag in redis_keys.ALL_TAGS]",
        "for tag in (redis_keys.RECORD_TAG,)]",
        focus="empty-keylane-shard",
        topics=("plain",),
        test="tests/integration/lanes/test_records_lost.py::test_readers_go_by_a_copy_while_the_layout_record_is_lost",
    ),
    # The layout changes first, and the lanes of the generation before are marked afterwards.
    rare_mutant(
        "marked before the switch",
        _SWITCH,
        f"{_MARKS}{_SWITCHES}",
        f"{_SWITCHES}{_MARKS}",
        test="tests/integration/lanes/test_switches.py::test_a_switch_that_a_kill_interrupts_leaves_no_reader_with_the_generation_before",
    ),
    # A switch looks for parked lanes before it waits, and not when both queries have stopped.
    Mutant(
        "parked lanes at a switch",
        (
            Replacement(
                _SWITCH,
                "            building.check()\n            self._check_parked()\n",
                "            building.check()\n",
            ),
            Replacement(
                _SWITCH,
                "building.raise_failure()\n"
                "        # Its last batch may have parked lanes, and reached all positions without them.\n"
                "        self._check_parked()\n",
                "building.raise_failure()\n",
            ),
        ),
        test="tests/unit/spark/test_switch.py::test_there_is_no_switch_where",
        is_rare=True,
    ),
    # A change of a layout that is carried out late takes back a later one of the same run.
    rare_mutant(
        "revisions of layouts",
        _LAYOUT_FUNCTION,
        "if is_overtaken(keys[3], args[3]) then",
        "if false then",
        test="tests/integration/lanes/test_library.py::test_a_call_that_is_executed_late_does_not_take_back_a_later_change_of_its_run",
    ),
    # A generation is switched to without the deletions that its log no longer shows.
    rare_mutant(
        "carried deletions",
        _SWITCH,
        "self._has_carried = self._has_carried or self._carry(self._building, stop)",
        "self._has_carried = True",
        # No schedule compacts a topic that has grown.
        test=f"{_GENERATIONS}::test_deletions_that_the_state_alone_knows_are_in_the_generation_that_is_built_next",
    ),
    # A key that the serving lane has not read yet is taken for a deleted one.
    rare_mutant(
        "carried if read",
        _LANE_READER,
        "if position.offset < read_to and not head:",
        "if not head:",
        test=f"{_CARRIED}::test_a_record_that_the_serving_lane_has_not_read_yet_is_not_taken_for_a_deleted_one",
    ),
    # A deletion deletes what was written since.
    rare_mutant(
        "carried to that record",
        _MERGE,
        "or (offset == entry.offset and entry.live",
        "or (entry.live",
        test=f"{_CARRIED}::test_a_key_that_is_set_again_between_the_look_and_the_deletion_stays",
    ),
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
