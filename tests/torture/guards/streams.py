"""The guards of streams of changes."""

from __future__ import annotations

from tests.torture.guards.mutant import Mutant, Replacement, mutant, rare_mutant

_CHANGES = "layers/keylane/python/keylane/query/changes.py"
_SOURCES = "layers/keylane/python/keylane/api/reads/change_sources.py"
_EVENTS = "layers/keylane/python/keylane/api/reads/changes.py"
_CHANGED_UNITS = "tests/unit/query/test_changes.py"
_SOURCE_UNITS = "tests/unit/api/test_change_sources.py"

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
        "read_changed(reader.store, request.topic, found, request.terms, self._seen)",
        "read_changed(reader.store, request.topic, found, request.terms, self._seen)[0], set()",
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
        "next_offsets[partition] = min(batch.next_offset, end)",
        "next_offsets[partition] = min(batch.next_offset, end) if batch.records else end",
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
)
