"""The guards of indexes of fields, of what is found by them, and of compressed values."""

from __future__ import annotations

from tests.torture.guards.lanes import MUTANTS as OF_LANES
from tests.torture.guards.mutant import Mutant, Replacement, mutant, rare_mutant

_LIBRARY = "spark/keylane_spark/lanes/library/"
_FIELDS, _MERGE = f"{_LIBRARY}fields.lua", f"{_LIBRARY}merge.lua"
_QUERY = "layers/keylane/python/keylane/query/"
_SCAN, _CONDITIONS, _FIND, _FINDER = (
    f"{_QUERY}{name}.py" for name in ("field_scan", "conditions", "find", "finder")
)
_UNITS = "tests/integration/functions/test_find.py"
_POSITIONS = "tests/unit/query/test_find_position.py"
_MODEL = "tests/integration/model/test_model.py"
_STATES = f"{_MODEL}::test_no_state_that_a_few_steps_and_faults_can_reach_breaks_a_promise"
_BEFORE = "there and there_fields or fields_of_expired(string.sub(key, rules.prefix + 1), rules)"
_DICTIONARIES = "layers/keylane/python/keylane/query/dictionaries.py"
_WRITER = "spark/keylane_spark/lanes/dictionaries.py"
_RECORDS = "spark/keylane_spark/lanes/library/records.lua"
_COMPRESSED_UNITS = "tests/unit/query/test_compressed_values.py"
_COLUMNS = "tests/unit/spark/test_compressed_columns.py"
_LANES = "tests/integration/lanes/test_compressed_lanes.py"
_TIES = "tests/integration/lanes/test_history_ties.py"
_ENTRIES = "layers/keylane/python/keylane/query/history_entries.py"
_HISTORY = "tests/unit/query/test_history.py"
_WINDOWS = "spark/keylane_spark/lanes/window_values.py"
_VIEWS = "tests/integration/lanes/test_view_lanes.py"
_STORE = "                self.store.add(topic, generation, trained)\n"
_USE = "                self._go_on_with(made)\n"

MUTANTS = (
    # What a record no longer has stays in its index: it is counted, though not found.
    mutant(
        "replaced members",
        _FIELDS,
        "    in_parts('ZREM', field_parts(number, rules), members)\n",
        "",
        topics=("rich",),
        test=_STATES,
    ),
    # Nobody knows which members a record had.
    mutant("entries before", _MERGE, _BEFORE, "''", topics=("rich",), test=_STATES),
    # A record of another partition is in no index of fields.
    mutant(
        "members of strays",
        "spark/keylane_spark/stream/partition_chunks.py",
        "(encoded,) = encode_chunks([indexed], [delivery], source)",
        "(encoded,) = encode_chunks([indexed if source is None else folded], [delivery], source)",
        configuration="kept",
        topics=("mixed",),
        test=_STATES,
    ),
    # What has expired stays in indexes of fields.
    mutant(
        "expired members",
        _FIELDS,
        "local before = not (entry and entry.payload) and fields_of_expired(name, rules) or ''",
        "local before = ''",
        configuration="timed",
        topics=("timed",),
        test=_STATES,
    ),
    # A key that is written again after it has expired was in no index.
    mutant(
        "entries of the expired",
        _MERGE,
        _BEFORE,
        "there and there_fields or ''",
        configuration="timed",
        topics=("timed",),
        test=_STATES,
    ),
    # What a lane with indexes has lost is not read again.
    Mutant(
        "repaired members",
        next(mutant.replacements for mutant in OF_LANES if mutant.name == "repair"),
        focus="lose-writes",
        topics=("rich",),
        test="tests/integration/lanes/test_lanes.py::test_a_chunk_that_does_not_follow_is_refused_and_so_is_all_behind_it",
    ),
    # Rows of several lanes are merged as if their order were ascending.
    mutant(
        "order of lanes",
        _SCAN,
        "reverse=not self._is_descending)",
        "reverse=True)",
        topics=("rich",),
        test=f"{_UNITS}::test_what_is_found_is_what_a_search_of_all_records_finds_in_order_and_in_pages",
    ),
    # A page begins with the row with which the one before has ended.
    Mutant(
        "find's cursor",
        (
            Replacement(
                _CONDITIONS, 'high = b"(" + self.prefix + after', 'high = b"[" + self.prefix + after'
            ),
            Replacement(_CONDITIONS, 'low = b"(" + self.prefix + after', 'low = b"[" + self.prefix + after'),
        ),
        topics=("rich",),
        test=f"{_UNITS}::test_a_cursor_goes_on_behind_what_was_read_whatever_is_written",
    ),
    # The next page is driven by the first condition on a field, and not by the one that drove this page.
    mutant(
        "drive of a cursor",
        _FINDER,
        "if each.name.encode() == position[1:end]",
        "if each.index.name.encode() == position[1:end].partition(b'\\0')[0]",
        topics=("rich",),
        test=f"{_UNITS}::test_conditions_on_several_values_of_a_record_give_one_row_on_all_pages",
    ),
    # A find that has to have a position is read from replicas, too, which may lack it.
    Mutant(
        "primaries of a position",
        (
            Replacement(_FIND, "read_kept(store.of_primaries, topic", "read_kept(store, topic"),
            Replacement(_FIND, "if reached <= position.offset:  #", "if False:  #"),
        ),
        focus="stale-replica",
        topics=("rich",),
        test=f"{_POSITIONS}::test_a_page_with_a_position_is_read_from_primaries_which_have_it",
    ),
    # Every part of an index answers with all records that it leads to.
    mutant(
        "bytes of a round",
        _SCAN,
        "most_bytes = min(BYTES_OF_LANE, BYTES_OF_ROUND // len(by_lane))",
        "most_bytes = 1 << 40",
        focus="large-values",
        test=f"{_UNITS}::test_a_page_of_large_values_reads_little_more_than_it_answers_with",
    ),
    # A position is taken to be there once one stripe of its partition has it.
    mutant(
        "all stripes of a position",
        _FIND,
        "reached = min(0 if mark is None",
        "reached = max(0 if mark is None",
        topics=("rich",),
        test=f"{_POSITIONS}::test_a_position_is_there_once_all_stripes_of_its_partition_have_it",
    ),
    # Rows are made ready that come behind one whose record was left out.
    mutant(
        "records that were left out",
        _SCAN,
        "going_on = [each for each in self._sources if not each.is_exhausted]",
        "going_on = [each for each in self._sources if each.left and not each.is_exhausted]",
        topics=("rich",),
        test=f"{_UNITS}::test_whatever_fits_into_a_round_the_pages_are_the_same",
    ),
    # Values name a dictionary that Redis does not have.
    mutant(
        "a dictionary is stored before it is used",
        _WRITER,
        f"{_STORE}{_USE}",
        f"{_USE}{_STORE}",
        configuration="kept",
        topics=("mixed",),
        focus="empty-keylane-shard",
        test="tests/unit/spark/test_generation_compressor.py::test_a_dictionary_that_can_not_be_stored_is_not_used",
    ),
    # A dictionary is forgotten: what one copy has lost the next failover loses for good.
    mutant(
        "copies of dictionaries",
        _WRITER,
        '                self._copies.call_one(tag, encode_command(b"HSET", key, *lacking))\n',
        "",
        configuration="kept",
        topics=("mixed",),
        focus="empty-keylane-shard",
        test=f"{_LANES}::test_a_dictionary_whose_slot_is_lost_is_read_from_a_copy_and_written_again",
    ),
    # The functions take a compressed value for none: an older record replaces it.
    mutant(
        "version of a compressed value",
        _RECORDS,
        "  if bit.band(flags, COMPRESSED) ~= 0 then\n    return 0\n  end\n",
        "",
        configuration="kept",
        topics=("mixed",),
        test=f"{_LANES}::test_a_stray_is_compressed_and_compared_as_any_record",
    ),
    rare_mutant(
        "readers ask other copies for a dictionary",
        _DICTIONARIES,
        "for tag in redis_keys.ALL_TAGS:\n",
        "for tag in (redis_keys.RECORD_TAG,):\n",
        test=f"{_COMPRESSED_UNITS}::test_a_copy_is_asked_where_the_first_one_has_lost_the_dictionary",
    ),
    # A dictionary is taken for the one that a value names.
    rare_mutant(
        "a wrong dictionary",
        _DICTIONARIES,
        "    if dictionary.id != dictionary_id:\n",
        "    if False:\n",
        test=f"{_COMPRESSED_UNITS}::test_a_wrong_dictionary_is_never_used",
    ),
    # Two dictionaries have one id: who has read one can't read the values of the other.
    mutant(
        "ids of dictionaries",
        "spark/keylane_spark/rows/compression.py",
        "    return with_hash_id(trained)\n",
        "    return trained\n",
        configuration="kept",
        topics=("mixed",),
        focus="empty-redis",
        test="tests/unit/state/test_compression.py::"
        "test_dictionaries_that_differ_in_anything_have_different_ids",
    ),
    # A frame of a few bytes takes all memory of a reader.
    rare_mutant(
        "the size of a compressed value",
        _DICTIONARIES,
        "        if size_bytes > limit_bytes:\n",
        "        if False:\n",
        test=f"{_COMPRESSED_UNITS}::test_a_value_that_names_more_bytes_than_the_topic_takes_is_not_decompressed",
    ),
    rare_mutant(
        "the size of all compressed values of a step",
        _DICTIONARIES,
        "        if size_bytes > self._left_bytes:\n",
        "        if False:\n",
        test=f"{_COMPRESSED_UNITS}::test_values_of_one_step_are_bounded_together",
    ),
    rare_mutant(
        "the size of a compressed window",
        _WINDOWS,
        "        if size_bytes > self._limit_bytes:\n",
        "        if False:\n",
        test=f"{_VIEWS}::test_a_window_that_names_more_bytes_than_any_has_is_not_decompressed",
    ),
    rare_mutant(
        "the size of windows that are expanded",
        "spark/keylane_spark/lanes/view_lanes.py",
        "                    size += max(own, len(data))\n",
        "                    size += len(data)\n",
        test=f"{_VIEWS}::test_what_windows_have_once_they_are_expanded_counts_for_the_limit",
    ),
    # The job writes a window that readers refuse.
    rare_mutant(
        "windows that are too large to be compressed",
        _WINDOWS,
        " if len(value) <= self._limit_bytes]",
        "]",
        test=f"{_VIEWS}::test_compressed_windows_are_read_by_the_next_epoch_and_change_again",
    ),
    # Values of random bytes get longer.
    rare_mutant(
        "values that do not get shorter stay",
        "spark/keylane_spark/rows/compression.py",
        "is_shorter = after + _LEAST_GAIN <= before",
        "is_shorter = after > 0",
        test=f"{_COLUMNS}::test_values_are_what_they_were_and_none_gets_longer",
    ),
    # Which of two records stays in a full history depends on which of them is compressed.
    mutant(
        "ties at the end of a history",
        "spark/keylane_spark/lanes/library/merge.lua",
        "  if mixed then\n    local tied, last = ",
        "  if false then\n    local tied, last = ",
        configuration="kept",
        topics=("mixed",),
        test=f"{_TIES}::test_many_partitions_tie_at_the_end_of_a_history",
    ),
    # ... and so does which comes first.
    rare_mutant(
        "ties on a history's pages",
        _ENTRIES,
        "    ordered = sorted(ranked[:whole], key=itemgetter(0), reverse=True)\n",
        "    ordered = ranked[:whole]\n",
        test=f"{_HISTORY}::test_a_page_may_end_between_records_of_one_time_and_offset",
    ),
    rare_mutant(
        "ties at the end of a page",
        _ENTRIES,
        "len(ranked) if is_over else _before_last_tie(ranked)",
        "len(ranked)",
        test=f"{_HISTORY}::test_a_page_may_end_between_records_of_one_time_and_offset",
    ),
    # A restart puts records into histories again, which then have no room for others.
    rare_mutant(
        "a repeated record is compressed otherwise",
        "spark/keylane_spark/lanes/chunk_transactions.py",
        'options.compression != "none" and covered.begin < watermark.next_offset',
        "False",
        test=f"{_LANES}::test_a_record_that_is_written_again_and_compressed_otherwise_is_in_its_history_once",
    ),
    # A history shows a record twice that was written again after another dictionary was made.
    rare_mutant(
        "a record once in a history",
        _ENTRIES,
        "    return _once_each(entries), next_after\n",
        "    return entries, next_after\n",
        test=f"{_COMPRESSED_UNITS}::test_a_record_that_is_twice_in_a_history_since_it_was_compressed_otherwise_is_shown_once",
    ),
)
