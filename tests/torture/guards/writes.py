"""The guards of the functions' writes."""

from __future__ import annotations

from tests.torture.guards.mutant import mutant, rare_mutant

_GUARDS = "layers/keylane/python/keylane/config/guards.py"
_KAFKA_ERRORS = "layers/keylane/python/keylane/adapters/kafka/errors.py"
_PRODUCER = "layers/keylane/python/keylane/adapters/kafka/producer.py"
_SHIPMENT = "layers/keylane/python/keylane/adapters/kafka/shipment.py"
_SHARED = "server/keylane_server/kafka/shared_client.py"
_DRAIN = "layers/keylane/python/keylane/drain/drain.py"
_GUARDED = "layers/keylane/python/keylane/api/writes/guarded_write.py"
_LIMITS = "layers/keylane/python/keylane/produce/rate_limits.py"
_CLIENT = "clients/python/keylane_client/context.py"
_SHIPPED = "tests/unit/adapters/test_kafka_shipment.py"
_SHARED_CALLS = "tests/unit/server/test_shared_calls.py"
_DRAINED = "tests/unit/drain/test_drain.py"

MUTANTS = (
    # A write may take longer than the claim on its idempotency key: it is repeated though nobody died.
    rare_mutant(
        "claims that writes outlast",
        _GUARDS,
        "if claim_s * 1000 <= longest_ms:",
        "if False:",
        test="tests/unit/produce/test_rate_limits.py::test_a_claim_that_a_write_may_outlast_is_refused_with_what_contradicts_it",
    ),
    # A record that Kafka was sent and did not acknowledge is reported as not written.
    rare_mutant(
        "unacknowledged",
        _KAFKA_ERRORS,
        "return Unacknowledged() if sent else LogUnavailable(",
        "return LogUnavailable(",
        test="tests/integration/job/test_full_disk.py::test_a_broker_whose_disk_is_full_costs_no_read_and_no_acknowledged_record",
    ),
    # A client that has ended with a fatal error stays: every later write fails.
    mutant(
        "clients that ended",
        _PRODUCER,
        'self._meter.count("ProducersReplaced")\n        self._drop(used)',
        'self._meter.count("ProducersReplaced")',
        focus="lose-log",
        configuration="replicated",
        test="tests/integration/kafka/test_fatal_errors.py::test_drain_writes_the_message_with_a_new_client_at_its_next_delivery",
    ),
    # The server's requests wait for reports that a client which has ended never gives.
    rare_mutant(
        "requests of a client that ended",
        _SHARED,
        "self._loop.call_soon_threadsafe(self._end, error.args[0])",
        "pass",
        test=f"{_SHARED_CALLS}::test_an_error_that_ends_the_client_ends_the_wait_of_every_request_and_the_client_takes_no_more",
    ),
    # An error in a callback ends the server's thread of reports, and with it all writes.
    rare_mutant(
        "thread of reports",
        _SHARED,
        '            _log.exception("a callback of Kafka\'s client has failed")',
        "            raise",
        test=f"{_SHARED_CALLS}::test_the_thread_of_reports_outlives_whatever_a_callback_raises",
    ),
    # One record that Kafka refuses takes its batch with it.
    mutant(
        "refused batches are divided",
        _SHIPMENT,
        "stack += self._parts(self._not_overtaken(group.indices, refused))",
        "pass",
        focus="refuse-record",
        test=f"{_SHIPPED}::test_only_the_bad_records_of_a_batch_are_refused",
    ),
    # A single record of the server is refused for a stranger's in its batch.
    mutant(
        "single records of shared batches",
        _SHIPMENT,
        "(len(group.indices) == 1 and not self._shares_batches)",
        "len(group.indices) == 1",
        focus="refuse-record",
        test=f"{_SHIPPED}::test_a_single_record_is_sent_alone_where_batches_are_shared",
    ),
    # What a topic has refused is sent with others again, and costs them a second batch each time.
    rare_mutant(
        "strangers are not slowed",
        _SHIPMENT,
        "        if not self._refusals:\n",
        "        if True:\n",
        test=f"{_SHIPPED}::test_what_a_topic_has_refused_goes_alone_from_then_on_with_the_records_of_its_keys",
    ),
    # After a rejection, what may have been written is sent again by another client.
    rare_mutant(
        "uncertain records after a rejection",
        _SHIPMENT,
        "return not report.uncertain",
        "return True",
        test=f"{_SHIPPED}::test_a_rejection_ends_the_wait_soon_and_what_was_handed_over_before_is_not_sent_again",
    ),
    # An older record of a key is retriable, though a newer one was written.
    rare_mutant(
        "superseded records",
        _SHIPMENT,
        "results[index] = Superseded(failed[index])",
        "pass",
        test=f"{_SHIPPED}::test_record_is_not_sent_again_where_a_newer_one_with_its_key_was_written",
    ),
    # A replay of dead letters turns a key back.
    rare_mutant(
        "superseded dead letters",
        _DRAIN,
        'attributes[SUPERSEDED] = "true"',
        "pass",
        test=f"{_DRAINED}::test_records_that_are_superseded_have_a_dead_letter_of_their_own",
    ),
    # A message is deleted though Kafka has not taken its records.
    mutant(
        "messages are deleted once they are written",
        _DRAIN,
        "failed=[state.message.id for state in states if state.failed]",
        "failed=[]",
        focus="lose-acks",
        test=f"{_DRAINED}::test_with_kafka_away_all_come_again",
    ),
    # A key that has a claim whose write is uncertain is free again: the request is written twice.
    rare_mutant(
        "claims of uncertain writes",
        _GUARDED,
        'or getattr(result, "uncertain", False)',
        "",
        test="tests/unit/api/test_idempotency.py::test_what_may_have_been_written_is_not_written_again_by_the_same_key",
    ),
    # The Python client repeats a write that may have been done.
    rare_mutant(
        "client that repeats nothing uncertain",
        _CLIENT,
        "if isinstance(error, ProblemError) and error.is_uncertain:",
        "if False:",
        test="tests/unit/client/test_writes.py::test_a_write_that_may_have_been_done_is_not_repeated_though_it_has_an_idempotency_key",
    ),
    # What a caller is refused takes of the topic's limit for a moment.
    rare_mutant(
        "caller's limit first",
        _LIMITS,
        "if own and not any(each and exceeded(each) for _, each in found):",
        "if own:",
        test="tests/unit/produce/test_rate_limits.py::test_caller_over_its_limit_is_refused_whole_and_takes_nothing_from_the_topics",
    ),
    # Refused records take of the limits of those that are written.
    rare_mutant(
        "refused loads are given back",
        _LIMITS,
        "            self.limiter.give_back(_to_give_back(taken, refused))",
        "            pass",
        test="tests/unit/produce/test_rate_limits.py::test_topic_over_its_limit_refuses_all_its_records_and_no_others",
    ),
)
