"""The guards of reads: of all, of those from the standing server, whose requests share layouts and
connections, and of what a caller with rules may see, beneath the routes, so that each read has them once."""

from __future__ import annotations

from tests.torture.guards.mutant import Mutant, Replacement, mutant, rare_mutant

_STORE = "layers/keylane/python/keylane/query/store.py"
_LATEST = "layers/keylane/python/keylane/query/latest.py"
_BROKEN_CLUSTER = "tests/integration/redis/test_redis_failures.py"
_STATE = "layers/keylane/python/keylane/adapters/redis/state.py"
_REPLICAS = "layers/keylane/python/keylane/adapters/redis/replicas.py"
_NODE = "local/keylane_local/servers/redis_node.py"
_ERRORS = "layers/keylane/python/keylane/adapters/redis/errors.py"
_AS_OF = "layers/keylane/python/keylane/query/as_of.py"
_KEY = "layers/keylane/python/keylane/api/reads/key.py"
_HISTORY_UNITS = "tests/unit/query/test_history.py"
_LOOKUP = "layers/keylane/python/keylane/query/lookup.py"
_CONNECTION = "server/keylane_server/redis/shared_connection.py"
_LOOKUP_UNITS = (
    "tests/unit/query/test_lookup.py::test_an_answer_of_a_lane_that_is_superseded_or_builds_is_not_final"
)
_ROWS = "layers/keylane/python/keylane/query/row_scopes.py"
_PAIRS = (
    "tests/unit/scopes/test_scope_pairs.py::"
    "test_answers_are_those_of_topics_that_hold_the_permitted_rows_and_fields"
)

MUTANTS = (
    # A read of several rounds claims the first watermark that it met.
    mutant(
        "least of the rounds",
        _STORE,
        "self.by_lane[lane] = watermark if known is None else known.least(watermark)",
        "self.by_lane[lane] = watermark if known is None else known",
        focus="lose-writes",
        topics=("rich",),
        test="tests/unit/query/test_ranges.py::test_a_page_claims_no_more_than_its_oldest_round",
    ),
    # A replica that lacks an awaited stray may answer.
    mutant(
        "primary only",
        _LATEST,
        "answer = _read(begin_reading(store, topic, deadline), key, terms, primary_only=True)",
        "answer = _read(begin_reading(store, topic, deadline), key, terms)",
        focus="stale-replica",
        topics=("mixed",),
        test="tests/unit/query/test_latest.py::test_a_stray_that_a_replica_lacks_is_read_from_the_primary",
    ),
    # A connection that asked a replica stays READONLY, and reads of a primary are answered by what it was.
    Mutant(
        "readwrite",
        (
            Replacement(
                _STATE,
                "return [*own, READONLY, *others, READWRITE] if others else own",
                "return [*own, READONLY, *others] if others else own",
            ),
            Replacement(_REPLICAS, "READONLY + packed + READWRITE, 3", "READONLY + packed, 2"),
        ),
        # Needs a failover and back while a slot migrates: seed 83161 was the one in 600.
        test=f"{_BROKEN_CLUSTER}::test_a_replica_that_was_asked_as_one_redirects_a_reader_that_takes_it_for_the_primary",
        is_rare=True,
    ),
    # Keys that no shard has are doubted for as long after a migration as those that one has.
    rare_mutant(
        "settled",
        _REPLICAS,
        "doubted_s = SETTLED_AFTER_S",
        "doubted_s = MIGRATING_FOR_S",
        test=f"{_BROKEN_CLUSTER}::test_replica_is_believed_again_soon_after_a_migration_that_the_reader_has_met",
    ),
    # Without a majority of primaries no node answers reads.
    mutant(
        "reads when down",
        _NODE,
        "cluster-allow-reads-when-down yes\n",
        "",
        focus="kill-two-primaries",
        topics=("plain",),
        test=f"{_BROKEN_CLUSTER}::test_two_primaries_that_are_lost_at_once_leave_every_shard_readable",
    ),
    # A read fails with the primary's error if the reader does not know it, as BUSY, though a replica is up.
    rare_mutant(
        "errors of one node",
        _ERRORS,
        'return type(error) is not ResponseError or bool(code and code[0] != "WRONGTYPE")',
        "return False",
        test=f"{_BROKEN_CLUSTER}::test_a_primary_that_is_busy_with_a_script_is_read_from_its_replica",
    ),
    # As of a position whose record the history has dropped, the one before it is answered.
    rare_mutant(
        "dropped positions",
        _AS_OF,
        "if too_short is None or (best is not None and best.position == position):",
        "if too_short is None or best is not None:",
        test=f"{_HISTORY_UNITS}::test_a_full_history_knows_a_position_of_its_records_and_what_came_after_the_latest_one",
    ),
    # As of now, a key whose time went back has the record with the highest time, not its latest one.
    rare_mutant(
        "latest as of now",
        _AS_OF,
        "    entries |= _read_latest(reading, lanes, found, as_of_ms)\n",
        "",
        test=f"{_HISTORY_UNITS}::test_as_of_a_time_after_the_latest_record_s_that_is_the_record",
    ),
    # As of a time at which records of several partitions tie, the last one in Redis' order is answered.
    rare_mutant(
        "ties as of a time",
        _AS_OF,
        "    entries |= _break_ties(reading, lanes, later)\n",
        "",
        test=f"{_HISTORY_UNITS}::test_a_tie_before_the_latest_record_is_broken_as_it_was_when_it_was_the_latest",
    ),
    # As of a time of which the own partition's record was dropped, a stray is answered.
    rare_mutant(
        "records of a time that a history has dropped",
        _AS_OF,
        "    return entry is not None and entry.position.partition != lane.partition\n",
        "    return False\n",
        test=f"{_HISTORY_UNITS}::"
        "test_a_history_that_may_have_dropped_the_own_partition_s_record_of_a_time_does_not_guess",
    ),
    # A topic that is created again has the ETags of the one before.
    rare_mutant(
        "incarnation of tags",
        _KEY,
        "    if incarnation:\n        suffix = ",
        "    if False:\n        suffix = ",
        test="tests/unit/api/test_read_key.py::test_a_tag_names_the_incarnation_of_the_topic_and_if_match_takes_a_position_alone",
    ),
    # What is sent over a connection that was closed meanwhile is never answered, nor what waits for it.
    mutant(
        "no sending over a closed connection",
        _CONNECTION,
        "        if not self.is_open:\n            exchange.end(",
        "        if False:\n            exchange.end(",
        focus="lose-shard",
        test="tests/unit/server/test_shared_connection.py::"
        "test_a_request_that_sends_over_a_connection_that_was_closed_meanwhile_fails_at_once",
    ),
    # A request that gave up leaves its place in the queue: the next one gets its replies.
    mutant(
        "place of a late request",
        _CONNECTION,
        "        for exchange in late:\n            exchange.end(",
        "        for exchange in late:\n            self._pending.remove(exchange)\n"
        "            exchange.end(",
        focus="slow-links",
        test="tests/unit/server/test_shared_connection.py::"
        "test_a_request_that_times_out_leaves_its_reply_to_nobody_and_the_connection_open",
    ),
    # A plain look-up is answered from a lane that is still being built.
    mutant(
        "look-up of a complete lane",
        _LOOKUP,
        "not answer.watermark.superseded and bool(answer.watermark.complete_as_of_ms)",
        "not answer.watermark.superseded",
        focus="empty-redis",
        topics=("plain",),
        test=_LOOKUP_UNITS,
    ),
    # A plain look-up is answered by the generation before, until another request reads the layout again.
    rare_mutant(
        "look-up of a superseded lane",
        _LOOKUP,
        "not answer.watermark.superseded and bool(answer.watermark.complete_as_of_ms)",
        "bool(answer.watermark.complete_as_of_ms)",
        test=_LOOKUP_UNITS,
    ),
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
