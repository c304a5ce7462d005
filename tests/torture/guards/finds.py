"""The guards of indexes of fields, and of what is found by them."""

from __future__ import annotations

from tests.torture.guards.mutant import Mutant, Replacement, mutant
from tests.torture.guards.writer import MUTANTS as OF_WRITER

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
        next(mutant.replacements for mutant in OF_WRITER if mutant.name == "repair"),
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
            Replacement(_FIND, "if reached is not None and reached <= position.offset:", "if False:"),
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
        "        reached = min(",
        "        reached = max(",
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
)
