"""The guards of streams of changes, of snapshots of whole topics, and of mappings that begin with one."""

from __future__ import annotations

from tests.torture.guards.mutant import Mutant, Replacement, mutant, rare_mutant

_CHANGES = "layers/keylane/python/keylane/query/changes.py"
_SOURCES = "layers/keylane/python/keylane/api/reads/change_sources.py"
_EVENTS = "layers/keylane/python/keylane/api/reads/changes.py"
_READER = "layers/keylane/python/keylane/adapters/kafka/reader.py"
_READER_UNITS = "tests/unit/adapters/test_kafka_reader.py"
_CHANGED_UNITS = "tests/unit/query/test_changes.py"
_SOURCE_UNITS = "tests/unit/api/test_change_sources.py"
_LANE = "layers/keylane/python/keylane/query/lane_snapshot.py"
_UNITS = "tests/unit/query/test_snapshot.py"
_READING = "clients/python/keylane_client/snapshots.py"
_WIRE = "clients/python/keylane_client/wire.py"
_SYNC = "clients/python/keylane_client/syncing.py"
_CLIENT_UNITS = "tests/unit/client"

MUTANTS = (
    # A record with an empty key counts as one without a key.
    mutant(
        "empty keys",
        _CHANGES,
        "if record.key is not None:",
        "if record.key:",
        focus="grow-topic",
        test=f"{_CHANGED_UNITS}::test_an_empty_key_and_one_that_no_request_can_name_are_reported_a_record_without_key_is_not",
    ),
    # A stream advances past a change that a replica behind its watermark lacked.
    rare_mutant(
        "values behind the stream",
        _SOURCES,
        "request.terms, self._seen, ends.giving\n                )",
        "request.terms, self._seen, ends.giving\n                )[0], set()",
        test="tests/integration/redis/test_stale_replicas.py::test_a_change_that_a_stale_replica_lacks_is_sent_once_the_primary_answers",
    ),
    # A stray counts as sent whatever its key's lane answered.
    rare_mutant(
        "strays behind the stream",
        _CHANGES,
        "answer, behind = answers[key], unsure.get(key, frozenset())",
        "answer, behind = answers[key], frozenset[int]()",
        test=f"{_SOURCE_UNITS}::test_a_stray_s_change_is_read_from_its_primary_and_sent_once_that_answers",
    ),
    # A stray that a failover took back counts as sent, by what the key's lane has instead.
    rare_mutant(
        "strays that were lost, in streams",
        _CHANGES,
        "if watermark is not None and has_taken(parse_taken(strays), given.get(lane, {})):",
        "if watermark is not None:",
        test=f"{_SOURCE_UNITS}::test_a_change_waits_where_a_failover_has_taken_strays_of_its_lane_back",
    ),
    # A record of the lane's own partition is sent where a stray that is newer was lost.
    rare_mutant(
        "strays that were lost, beside records of their lane's partition",
        _CHANGES,
        "is_mixed = each.lane in given",
        "is_mixed = False",
        test=f"{_SOURCE_UNITS}::test_a_change_waits_where_a_failover_has_taken_strays_of_its_lane_back",
    ),
    # Which strays a partition gave is taken from a lane that has gone back, too.
    rare_mutant(
        "what a partition gave has gone back",
        _CHANGES,
        "return None if is_behind else given",
        "return given",
        test=f"{_SOURCE_UNITS}::test_a_stream_stays_where_it_is_while_the_partition_that_gave_strays_has_gone_back",
    ),
    # A snapshot begins at a position, and lacks strays below it that a failover took back.
    rare_mutant(
        "strays that were lost before a snapshot",
        "layers/keylane/python/keylane/query/snapshot.py",
        "given = read_given(reading, giving, known) if giving else {}",
        "given: dict[Lane, dict[int, int]] = {}",
        test=f"{_UNITS}::test_strays_that_a_failover_took_back_before_their_lane_was_scanned_are_in_it",
    ),
    # A lane lacks strays for ever of which the log has none any more.
    rare_mutant(
        "strays that were read again",
        "spark/keylane_spark/stream/topic_query.py",
        "self._lanes.put_strays(lost.lane, Chunk.empty(lost.end), lost.source_partition)",
        "pass",
        test="tests/integration/job/test_job_strays.py::test_a_lane_has_lost_no_strays_any_more_once_what_is_left_of_them_was_read_again",
    ),
    # A topic of many partitions has more to read at once than a node returns.
    rare_mutant(
        "bytes of a stream's batch",
        _READER,
        "if size_bytes > max_bytes and has_records:",
        "if False:",
        test=f"{_READER_UNITS}::test_all_partitions_together_have_so_many_bytes_and_one_record_at_least",
    ),
    rare_mutant(
        "a partition without a leader beside others",
        _READER,
        "not (has_some and silent >= SILENT_LOOKS)",
        "True",
        test=f"{_READER_UNITS}::test_a_partition_of_which_nothing_comes_holds_up_the_others_for_a_second",
    ),
    rare_mutant(
        "where a partition's part of a batch ends",
        _READER,
        "        if message.partition() not in unread:\n            continue\n",
        "",
        test=f"{_READER_UNITS}::test_several_partitions_are_read_at_once_each_to_its_own_end",
    ),
    rare_mutant(
        "the leaders of a topic that a consumer meets",
        _READER,
        "if self.met.get(topic, 0.0) > now_s:",
        "if self.met:",
        test=f"{_READER_UNITS}::test_a_consumer_asks_for_the_leaders_of_each_topic_that_it_meets_and_again_after_a_while",
    ),
    # A stream ends for good where the values of its keys are larger than its records were.
    rare_mutant(
        "large values of a stream",
        _SOURCES,
        "if len(found.keys) == 1:\n                    raise",
        "if found.keys:\n                    raise",
        test=f"{_SOURCE_UNITS}::test_changes_of_values_that_a_node_does_not_return_at_once_come_in_parts",
    ),
    # A replica that is behind what the stream has sent takes a key back.
    rare_mutant(
        "a stream's keys do not go back",
        _CHANGES,
        "each.watermark.next_offset < seen.get(each.lane, 0)",
        "False",
        test=f"{_SOURCE_UNITS}::test_a_key_does_not_go_back_where_a_replica_is_behind_what_was_sent",
    ),
    # A broker that is behind the state has nothing to read: that counts as the end.
    rare_mutant(
        "log behind the stream",
        _CHANGES,
        "min(batch.next_offset, until[partition])",
        "min(batch.next_offset, until[partition]) if batch.records else until[partition]",
        test=f"{_CHANGED_UNITS}::test_a_broker_that_is_behind_the_state_has_nothing_passed_over",
    ),
    # A listener of a topic that is created again goes on at the old one's offsets, without a gap.
    Mutant(
        "incarnation of streams",
        (
            Replacement(
                _SOURCES,
                "if since.incarnation != ends.incarnation:\n            return _begin_again(since, ends)",
                "if False:\n            return _begin_again(since, ends)",
            ),
            Replacement(
                _SOURCES, "    if since.incarnation != ends.incarnation:\n        return since\n", ""
            ),
            Replacement(_SOURCES, "    if since.incarnation != ends.incarnation:\n        return True\n", ""),
        ),
        test=f"{_SOURCE_UNITS}::test_a_topic_that_is_created_again_is_a_gap_and_is_read_from_its_first_record",
        is_rare=True,
    ),
    # A key's absence has the id of its lane's last record, which may be the key's first one.
    rare_mutant(
        "id of absence",
        _EVENTS,
        "        return ABSENT_ID\n",
        '        return f"{answer.partition}:{max(answer.watermark.next_offset - 1, 0)}"\n',
        test=f"{_SOURCE_UNITS}::test_the_first_record_of_a_key_is_sent_to_a_listener_that_saw_its_absence",
    ),
    # The lane is cut where its scan began: what came after that is in some rows.
    mutant(
        "the cut behind the scan",
        _LANE,
        "            ends = self._ends(step)\n            self._begin = self._begin or ends",
        "            ends = self._begin = self._begin or self._ends(step)",
        focus="grow-topic",
        test=f"{_UNITS}::test_each_lane_is_the_fold_of_the_log_below_its_cut",
    ),
    # What changed while the lane was scanned is not read again.
    mutant(
        "what changed since the scan",
        _LANE,
        "                ends = yield from self._catch_up(ends)\n",
        "",
        focus="grow-topic",
        test=f"{_UNITS}::test_each_lane_is_the_fold_of_the_log_below_its_cut",
    ),
    # A key that was deleted after it was scanned keeps its row.
    mutant(
        "removed rows",
        _LANE,
        "elif not is_scan and self._may_have_row(key):",
        "elif False:",
        focus="grow-topic",
        test=f"{_UNITS}::test_each_lane_is_the_fold_of_the_log_below_its_cut",
    ),
    # A cursor means nothing to another process: a scan that goes on there leaves keys out.
    mutant(
        "moved lanes",
        _LANE,
        'if self._process not in {b"", step.process}:',
        "if False:",
        focus="reshard",
        test=f"{_UNITS}::test_a_slot_that_moves_or_fails_over_is_read_again",
    ),
    # Keys that have left already are not among those of the node.
    mutant(
        "migrating lanes",
        _LANE,
        "        if step.is_migrating:\n",
        "        if False:\n",
        focus="reshard",
        test=f"{_UNITS}::test_a_slot_that_moves_or_fails_over_is_read_again",
    ),
    # Once the watermark has moved, the new node is asked, which has not got all keys.
    mutant(
        "lanes that arrive",
        "layers/keylane/python/keylane/query/lane_scan.py",
        "redis.pcall('MGET', KEYS[1], ARGV[1])",
        "redis.pcall('MGET', KEYS[1])",
        focus="reshard",
        test="tests/integration/redis/test_redis_snapshots.py::test_a_lane_whose_slot_moves_while_it_is_scanned_lacks_no_key",
    ),
    # A replica that took over lacks what was sent of the lane: the cut is behind its rows.
    rare_mutant(
        "lanes that went back",
        _LANE,
        "if any(ends.get(source, 0) < end for source, end in self._highest.items()):",
        "if False:",
        test=f"{_UNITS}::test_a_lane_is_not_cut_behind_rows_that_a_failover_took_back",
    ),
    # What a failover took back before the lane was scanned is applied again after that.
    rare_mutant(
        "lanes that went back before",
        _LANE,
        "= given.ends[lane]",
        "= {}",
        test=f"{_UNITS}::test_a_lane_that_a_failover_took_back_before_it_was_scanned_has_what_is_applied_again",
    ),
    # The log beyond the lane counts as read, and what it has reaches the lane later.
    rare_mutant(
        "the log ahead of the lane",
        _LANE,
        "known = {source: min(end, first.get(source, end)) for source, end in known.items()}",
        "pass",
        test=f"{_UNITS}::test_strays_are_as_of_their_own_offsets",
    ),
    # The stream begins where it is by now: what came between the snapshot and that is in neither.
    mutant(
        "the position of a mapping",
        _WIRE,
        """ | ({"Last-Event-ID": behind} if behind else {})""",
        "",
        test=f"{_CLIENT_UNITS}/test_sync.py::test_a_stream_that_breaks_is_resumed_where_it_was_however_often",
    ),
    # A key that is deleted stays in the mapping.
    mutant(
        "removed keys of a mapping",
        _SYNC,
        "        elif absent is not None:\n",
        "        elif False:\n",
        test=f"{_CLIENT_UNITS}/test_sync.py::test_a_mapping_has_the_snapshot_and_then_each_change",
    ),
    # A key that is deleted while its lane is read stays among the lane's records.
    mutant(
        "removed rows of the client",
        _READING,
        "            rows.pop(normal_key(parse_key(document)), None)\n",
        "            pass\n",
        test=f"{_CLIENT_UNITS}/test_snapshots.py::"
        "test_a_snapshot_has_the_last_row_of_each_key_and_ends_with_its_vector",
    ),
    # The mapping goes on behind a gap as if there was none.
    mutant(
        "gaps of a mapping",
        _SYNC,
        """                        if event.name == "gap":\n                            return has_moved\n""",
        "",
        focus="empty-redis",
        test=f"{_CLIENT_UNITS}/test_sync.py::test_after_a_gap_the_mapping_is_replaced_and_what_differs_is_reported",
    ),
    # A lane that a failover took back is read as one that is there: the stream leaves out what follows.
    rare_mutant(
        "lanes behind the beginning",
        _READING,
        "if self.next_offset < at.next_offsets.get(partition, 0):",
        "if False:",
        test=f"{_CLIENT_UNITS}/test_snapshots.py::"
        "test_a_lane_behind_where_the_snapshot_began_takes_the_position_back",
    ),
)
