"""The guards of reads from the standing server, whose requests share layouts and connections."""

from __future__ import annotations

from tests.torture.guards.mutant import mutant, rare_mutant

_LOOKUP = "layers/keylane/python/keylane/query/lookup.py"
_CONNECTION = "server/keylane_server/redis/shared_connection.py"
_LOOKUP_UNITS = (
    "tests/unit/query/test_lookup.py::test_an_answer_of_a_lane_that_is_superseded_or_builds_is_not_final"
)

MUTANTS = (
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
)
