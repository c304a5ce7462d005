"""The guards of what a lane claims: the time as of which it is complete."""

from __future__ import annotations

from tests.torture.guards.mutant import Mutant, Replacement, mutant, rare_mutant

_WATERMARK = "spark/keylane_spark/lanes/library/watermark.lua"
_HEARTBEAT = "spark/keylane_spark/stream/heartbeat.py"
_FRESHNESS = "spark/keylane_spark/stream/freshness.py"
_ADMIN = "spark/keylane_spark/log/kafka_admin.py"
_CLAIMS = "spark/keylane_spark/lanes/claim_clock.py"
_READING = "spark/keylane_spark/stream/reading_query.py"

MUTANTS = (
    # A lane of a topic with strays is marked as complete as its own partition is.
    mutant(
        "slowest partition",
        _FRESHNESS,
        "min(bounds.get(topic, complete_ms), complete_ms)",
        "max(bounds.get(topic, complete_ms), complete_ms)",
        topics=("mixed",),
        test="tests/unit/spark/test_freshness.py::test_a_topic_with_strays_is_complete_as_of_when_its_last_partition_is",
    ),
    # The heartbeat asks for the ends of the log before it looks at the clock.
    Mutant(
        "observe before ask",
        (
            Replacement(
                _HEARTBEAT,
                "before, seen_ms = self._query.positions, self._claim_clock.now_ms()",
                "before = self._query.positions",
            ),
            Replacement(
                _HEARTBEAT,
                "        fallen = self._freshness.observe(seen_ms, answered.offsets, before)\n",
                "        seen_ms = self._claim_clock.now_ms()\n"
                "        fallen = self._freshness.observe(seen_ms, answered.offsets, before)\n",
            ),
        ),
        focus="part-kafka",
        test="tests/integration/job/test_age.py::test_a_lane_is_complete_as_of_a_time_before_the_broker_was_asked",
    ),
    # Lanes are complete up to the last stable offset, which hides acknowledged records behind it.
    Mutant(
        "high watermark",
        (
            Replacement(_ADMIN, "LATEST, READ_UNCOMMITTED, At,", "LATEST, READ_COMMITTED, At,"),
            Replacement(
                _ADMIN,
                "AdminSession.list_offsets, queries, READ_UNCOMMITTED",
                "AdminSession.list_offsets, queries, READ_COMMITTED",
            ),
        ),
        focus="hang-transaction",
        topics=("plain",),
        test="tests/integration/job/test_age.py::test_an_acknowledged_record_behind_an_open_transaction_is_not_claimed_before_it_is_read",
    ),
    # The driver's clock alone says as of when a lane is complete.
    Mutant(
        "claim clock",
        (
            Replacement(_WATERMARK, "math.min(complete, time_ms())", "complete"),
            Replacement(_CLAIMS, "return min(wall_ms, math.floor", "return max(wall_ms, math.floor"),
        ),
        focus="clock-jump",
        topics=("plain",),
        test="tests/integration/lanes/test_lanes.py::test_no_call_leaves_a_claim_of_the_future_whatever_was_sent_or_stored",
    ),
    # A batch claims that a lane is complete which may lack strays, since Redis lost them and what says so.
    rare_mutant(
        "claims of lacking lanes",
        _READING,
        "left_to_it = self.lacking | self.doubted",
        "left_to_it: set[TopicPartition] = set()",
        test="tests/integration/model/test_claims.py::test_a_batch_claims_nothing_of_a_lane_that_may_lack_strays",
    ),
)
