"""The guards of compressed values and of their dictionaries."""

from __future__ import annotations

from tests.torture.guards.mutant import mutant, rare_mutant

_READERS = "layers/keylane/python/keylane/query/dictionaries.py"
_WRITER = "spark/keylane_spark/lanes/dictionaries.py"
_RECORDS = "spark/keylane_spark/lanes/library/records.lua"
_UNITS = "tests/unit/query/test_compressed_values.py"
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
    # Values name a dictionary that Redis does not have.
    mutant(
        "a dictionary is stored before it is used",
        _WRITER,
        f"{_STORE}{_USE}",
        f"{_USE}{_STORE}",
        configuration="kept",
        topics=("mixed",),
        focus="empty-keylane-shard",
        test=f"{_LANES}::test_a_process_that_can_not_store_its_dictionary_writes_values_that_need_none",
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
        _READERS,
        "for tag in redis_keys.ALL_TAGS:\n",
        "for tag in (redis_keys.RECORD_TAG,):\n",
        test=f"{_UNITS}::test_a_copy_is_asked_where_the_first_one_has_lost_the_dictionary",
    ),
    # A dictionary is taken for the one that a value names.
    rare_mutant(
        "a wrong dictionary",
        _READERS,
        "    if dictionary.id != dictionary_id:\n",
        "    if False:\n",
        test=f"{_UNITS}::test_a_wrong_dictionary_is_never_used",
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
        _READERS,
        "        if size_bytes > limit_bytes:\n",
        "        if False:\n",
        test=f"{_UNITS}::test_a_value_that_names_more_bytes_than_the_topic_takes_is_not_decompressed",
    ),
    rare_mutant(
        "the size of all compressed values of a step",
        _READERS,
        "        if size_bytes > self._left_bytes:\n",
        "        if False:\n",
        test=f"{_UNITS}::test_values_of_one_step_are_bounded_together",
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
        test=f"{_UNITS}::test_a_record_that_is_twice_in_a_history_since_it_was_compressed_otherwise_is_shown_once",
    ),
)
