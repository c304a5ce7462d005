"""The guards of the functions' writes."""

from __future__ import annotations

from tests.torture.guards.mutant import Mutant, Replacement

_GUARDS = "layers/keylane/python/keylane/config/guards.py"
_KAFKA_ERRORS = "layers/keylane/python/keylane/adapters/kafka/errors.py"

MUTANTS = (
    # A write may take longer than the claim on its idempotency key: it is repeated though nobody died.
    Mutant(
        "claims that writes outlast",
        (Replacement(_GUARDS, "if claim_s * 1000 <= longest_ms:", "if False:"),),
        test="tests/unit/produce/test_rate_limits.py::test_a_claim_that_a_write_may_outlast_is_refused_with_what_contradicts_it",
        is_rare=True,
    ),
    # A record that Kafka was sent and did not acknowledge is reported as not written.
    Mutant(
        "unacknowledged",
        (
            Replacement(
                _KAFKA_ERRORS,
                "return Unacknowledged() if sent else LogUnavailable(",
                "return LogUnavailable(",
            ),
        ),
        test="tests/integration/job/test_full_disk.py::test_a_broker_whose_disk_is_full_costs_no_read_and_no_acknowledged_record",
        is_rare=True,
    ),
)
