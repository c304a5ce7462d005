"""The guards of what a caller with rules may see: beneath the routes, so each read has them once."""

from __future__ import annotations

from tests.torture.guards.mutant import mutant

_ROWS = "layers/keylane/python/keylane/query/row_scopes.py"
_PAIRS = (
    "tests/unit/scopes/test_scope_pairs.py::"
    "test_answers_are_those_of_topics_that_hold_the_permitted_rows_and_fields"
)

MUTANTS = (
    # Every caller sees every row.
    mutant(
        "scope of a topic",
        _ROWS,
        "        return found\n\n    def _make(",
        "        return TopicScope(layout, [Permit(ALL_KEYS)], self._decode)\n\n    def _make(",
        test=_PAIRS,
    ),
    # A rule's fields lead to rows in indexes, and are not compared where a row is read by its key.
    mutant(
        "fields of a rule",
        _ROWS,
        "self.has_key(record.key) and all(each.is_met(record.entries, document) for each in self.where)",
        "self.has_key(record.key)",
        test=_PAIRS,
    ),
    # The number of keys is that of all callers.
    mutant(
        "count within the scope",
        "layers/keylane/python/keylane/query/key_count.py",
        "    if reading.scope is not None:\n        return _count_permitted",
        "    if False:\n        return _count_permitted",
        test="tests/unit/scopes/test_scoped_reads.py::test_a_count_looks_at_no_other_rows",
    ),
    # A stream names each key that changes: as one that has left, though it never was permitted.
    mutant(
        "keys of a scoped stream",
        "layers/keylane/python/keylane/api/reads/scoped_changes.py",
        "        if event.key not in self._inside:\n            return None\n",
        "",
        test="tests/unit/scopes/test_scoped_changes.py::"
        "test_of_a_row_that_was_never_permitted_nothing_is_sent",
    ),
)
