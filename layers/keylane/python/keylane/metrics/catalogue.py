"""Every metric of functions and job: one table for CloudWatch, OpenMetrics and docs/operate/metrics.md.

A name in OpenMetrics ends with the unit, a counter's samples with `_total`. The names that had none, of which
most are those of kprf (github.com/city-mobil/kafka-proxy), are `FORMER_NAMES`.
Every label has a bounded set of values: methods, statuses, problem types, error codes, brokers, and topics
that exist. A label never contains a key, or an unknown name from a request.
"""

from typing import NamedTuple

COUNT, MS, US, BYTES = "Count", "Milliseconds", "Microseconds", "Bytes"
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Metric(NamedTuple):
    """One metric: its kind, unit and labels, its name in OpenMetrics, and its meaning.

    `is_billed`: whether CloudWatch makes a metric of it, which it charges for by name and label values. The
    others are only in the log line, for Logs Insights. `is_summed`: whether the values of a gauge in several
    processes add up; a counter's always do.
    """

    kind: str
    unit: str
    labels: tuple[str, ...]
    openmetrics: str
    meaning: str
    is_billed: bool = True
    is_summed: bool = False

    @property
    def samples(self) -> str:
        """The name of its samples; those of a histogram have suffixes besides."""
        return f"{self.openmetrics}_total" if self.kind == COUNTER else self.openmetrics


def counter(name: str, meaning: str, *labels: str, **more: bool) -> Metric:
    """Return a counter of what is counted one by one."""
    return Metric(COUNTER, COUNT, labels, name, meaning, **more)


def gauge(name: str, meaning: str, *labels: str, **more: bool) -> Metric:
    """Return a number of something that is there."""
    return Metric(GAUGE, COUNT, labels, name, meaning, **more)


def durations(name: str, meaning: str, *labels: str) -> Metric:
    """Return a histogram of milliseconds."""
    return Metric(HISTOGRAM, MS, labels, name, meaning)


FUNCTIONS: dict[str, Metric] = {
    "RequestDuration": durations(
        "http_requests_duration_ms", "From a request's event to its answer", "method", "code"
    ),
    "Problems": counter("keylane_problems", "Requests answered with a problem of this type", "problem"),
    "ColdStarts": counter("keylane_cold_starts", "Environments that served their first request", "function"),
    "AnswerAge": durations("keylane_answer_age_ms", "Age of the answers, as reported to clients", "topic"),
    "NodeFailures": counter(
        "keylane_node_failures", "Reads that a Redis node did not answer, so that a replica was asked"
    ),
    "MapRefreshes": counter("keylane_map_refreshes", "Times that the slot map of Redis was re-read"),
    "SendDuration": durations(
        "kafka_message_send_duration_ms",
        "Of each record: from hand-over to Kafka's client until its request was reported",
        "topic",
    ),
    "SentMessages": counter("kafka_messages_sent", "Records that Kafka acknowledged", "topic"),
    "KafkaErrors": counter(
        "kafka_errors",
        "Records that were not acknowledged, by Kafka's name of the error",
        "topic",
        "error_code",
    ),
    "ProducersReplaced": counter(
        "keylane_producers_replaced",
        "Kafka clients that ended with a fatal error and were replaced: writes on their way are uncertain",
    ),
    "RateLimited": counter(
        "ratelimit_messages",
        "Records that the rate limit of a topic refused, by the pattern of its rule",
        "topic",
    ),
    "LimitsUncounted": counter(
        "keylane_limits_uncounted", "Rate limits that were not counted, because Redis did not answer"
    ),
    "RetriedMessages": counter(
        "keylane_retried_messages", "Messages of the write-ahead log that are delivered again", "reason"
    ),
    "DeadLetters": counter(
        "keylane_dead_letters", "Records of the write-ahead log that Kafka never accepts", "reason"
    ),
    "AccessDecisions": counter(
        "keylane_access_decisions",
        "Requests with a JWT, by the rule that decided and by the result: allowed or denied",
        "rule",
        "result",
    ),
    "FindScanned": counter(
        "keylane_find_scanned", "Entries of an index of fields that finds looked at", "topic", "index"
    ),
    "FindReturned": counter(
        "keylane_find_returned", "Records that finds returned, by the index that was read", "topic", "index"
    ),
    "QueueSize": gauge(
        "kafka_internal_queue_size",
        "Records still in Kafka's client when a request was answered: they may be lost unless this is 0",
    ),
}
"""Metrics of requests."""

STREAMS: dict[str, Metric] = {
    "StreamsOpen": gauge(
        "keylane_streams_open",
        "Streams of changes, and snapshots, that are open",
        "kind",
        is_billed=False,
        is_summed=True,
    ),
    "StreamsCut": counter(
        "keylane_streams_cut", "Streams that were ended because their client read too slowly", is_billed=False
    ),
}
"""Metrics of the standing server's streams. Functions on Lambda have none."""


def _client(kind: str, unit: str, name: str, meaning: str, *, is_billed: bool = False) -> Metric:
    return Metric(kind, unit, (), f"kafka_producer_{name}", meaning, is_billed)


def _broker(kind: str, unit: str, name: str, meaning: str, *, is_billed: bool = False) -> Metric:
    return Metric(kind, unit, ("broker",), f"kafka_producer_{name}", meaning, is_billed)


CLIENT: dict[str, tuple[str, Metric]] = {
    "replyq": ("ReplyQueue", _client(GAUGE, COUNT, "reply_queue_size", "Reports waiting to be read")),
    "msg_cnt": (
        "QueuedMessages",
        _client(GAUGE, COUNT, "current_messages_in_queue", "Records in the client's queues", is_billed=True),
    ),
    "msg_size": ("QueuedBytes", _client(GAUGE, BYTES, "current_messages_in_queue_bytes", "Their bytes")),
    "tx": ("Requests", _client(COUNTER, COUNT, "requests", "Requests sent to brokers")),
    "tx_bytes": ("RequestBytes", _client(COUNTER, BYTES, "sent_bytes", "Bytes sent to brokers")),
    "rx": ("Responses", _client(COUNTER, COUNT, "responses", "Responses from brokers")),
    "rx_bytes": ("ResponseBytes", _client(COUNTER, BYTES, "received_bytes", "Bytes from brokers")),
    "txmsgs": ("ProducedMessages", _client(COUNTER, COUNT, "messages_sent", "Records sent to brokers")),
    "txmsg_bytes": (
        "ProducedBytes",
        _client(COUNTER, BYTES, "messages_sent_bytes", "Their bytes"),
    ),
    "metadata_cache_cnt": (
        "CachedTopics",
        _client(GAUGE, COUNT, "metadata_cache_topics_count", "Topics that the client knows"),
    ),
}
"""librdkafka's statistics of a client, by their field names."""

BROKER: dict[str, tuple[str, Metric]] = {
    "state": (
        "BrokerState",
        _broker(GAUGE, COUNT, "broker_state", "0 INIT, 1 DOWN, 2 CONNECT, 3 to 5 AUTH, 6 UP, 7 UPDATE"),
    ),
    "stateage": ("BrokerStateAge", _broker(GAUGE, US, "broker_state_age_us", "Time since it changed")),
    "outbuf_cnt": ("BrokerOutbuf", _broker(GAUGE, COUNT, "broker_outbuf_count", "Requests not sent yet")),
    "outbuf_msg_cnt": (
        "BrokerOutbufMessages",
        _broker(GAUGE, COUNT, "broker_outbuf_msg_count", "Records not sent yet"),
    ),
    "waitresp_cnt": (
        "BrokerInFlight",
        _broker(GAUGE, COUNT, "broker_waitresp_count", "Requests that wait for a response"),
    ),
    "waitresp_msg_cnt": (
        "BrokerInFlightMessages",
        _broker(GAUGE, COUNT, "broker_waitresp_msg_count", "Records that wait for a response"),
    ),
    "tx": ("BrokerRequests", _broker(COUNTER, COUNT, "broker_requests", "Requests sent")),
    "txbytes": ("BrokerRequestBytes", _broker(COUNTER, BYTES, "broker_sent_bytes", "Their bytes")),
    "txerrs": (
        "BrokerSendErrors",
        _broker(COUNTER, COUNT, "broker_send_errors", "Requests that could not be sent", is_billed=True),
    ),
    "txretries": (
        "BrokerRetries",
        _broker(COUNTER, COUNT, "broker_retries", "Requests sent again", is_billed=True),
    ),
    "req_timeouts": (
        "BrokerTimeouts",
        _broker(
            COUNTER, COUNT, "broker_request_timeouts", "Requests that got no response in time", is_billed=True
        ),
    ),
    "rx": ("BrokerResponses", _broker(COUNTER, COUNT, "broker_responses", "Responses")),
    "rxbytes": ("BrokerResponseBytes", _broker(COUNTER, BYTES, "broker_received_bytes", "Their bytes")),
    "rxerrs": (
        "BrokerReceiveErrors",
        _broker(COUNTER, COUNT, "broker_receive_errors", "Responses that could not be read", is_billed=True),
    ),
    "rtt": (
        "BrokerRoundTrip",
        _broker(
            GAUGE, US, "broker_rtt_p99_us", "Duration that 99 % of round trips stay below", is_billed=True
        ),
    ),
}
"""librdkafka's statistics of each broker."""

TOPIC: dict[str, tuple[str, Metric]] = {
    "metadata_age": (
        "TopicMetadataAge",
        Metric(GAUGE, MS, ("topic",), "kafka_producer_topic_metadata_age_ms", "Age of its metadata", False),
    ),
    "batchsize": (
        "TopicBatchBytes",
        Metric(
            GAUGE,
            BYTES,
            ("topic",),
            "kafka_producer_topic_batchsize_avg_bytes",
            "Mean size of batches",
            False,
        ),
    ),
    "batchcnt": (
        "TopicBatchMessages",
        Metric(
            GAUGE, COUNT, ("topic",), "kafka_producer_topic_batchcount_avg", "Mean records of batches", False
        ),
    ),
}
"""librdkafka's statistics of each topic that was written to."""

METRICS: dict[str, Metric] = FUNCTIONS | STREAMS | dict([*CLIENT.values(), *BROKER.values(), *TOPIC.values()])
"""All metrics, by their names in CloudWatch."""


def _job(kind: str, own: dict[str, tuple[str, str]]) -> dict[str, Metric]:
    """The metrics whose only label is `kind`, a topic's writer or a view's: what they are, and their meaning.

    In OpenMetrics a name has its words in lower case, behind `keylane` and the kind, and its unit at the end.
    """
    of_both = {
        "Lag": (GAUGE, "Offsets between the state and Kafka's high watermarks"),
        "Age": (GAUGE, "How stale the state may be; absent while a lane is being built"),
        "IncompletePartitions": (
            GAUGE,
            "Partitions of which retention removed records before the job read them",
        ),
        "Records": (COUNTER, "Records that were read"),
        "Batches": (COUNTER, "Batches that were written"),
        "Restarts": (COUNTER, "Unplanned restarts of the writer"),
    }
    found = {}
    for name, (shape, meaning) in (of_both | own).items():
        words = "".join(f"_{each.lower()}" if each.isupper() else each for each in name)
        unit, ending = (MS, "_ms") if name in _IN_MS else (COUNT, "")
        found[name] = Metric(shape, unit, (kind,), f"keylane_{kind}{words}{ending}", meaning)
    return found


_IN_MS = {"Age", "ClockSkew"}
JOB: dict[str, dict[str, Metric]] = {
    "topic": _job(
        "topic",
        {
            "ParkedPartitions": (GAUGE, "Partitions whose lanes take no writes"),
            "StoppedPartitions": (GAUGE, "Partitions that stop at a record on which a transform fails"),
            "MissedDeletions": (GAUGE, "Partitions that may hold deleted keys; also counted as incomplete"),
            "ClockSkew": (
                GAUGE,
                "By how much the driver's clock is ahead of the Redis node's that differs most",
            ),
            "Strays": (COUNTER, "Records in another partition than their key's"),
            "LeftInKafka": (COUNTER, "Values over max_value_bytes, which stay in Kafka"),
            "InvalidEvents": (COUNTER, "Values that are not the change events which the topic should have"),
            "LeftOut": (COUNTER, "Records that the topic's transform leaves out"),
            "Failed": (COUNTER, "Records on which the topic's transform fails"),
            "InvalidFields": (COUNTER, "Values of fields that no index can have, so nothing finds them"),
        },
    ),
    "view": _job(
        "view",
        {
            "Windows": (COUNTER, "Windows that were written"),
            "Late": (COUNTER, "Records whose window was final already"),
            "Invalid": (COUNTER, "Records without key or time"),
            "Failed": (COUNTER, "Records on which the view's expressions failed"),
            "Stops": (COUNTER, "Errors that stopped the view until the job's next start"),
            "Stopped": (GAUGE, "1 while an error keeps the view from being served, else 0"),
        },
    ),
    "index": {
        "IndexEntries": Metric(
            GAUGE, COUNT, ("topic", "index"), "keylane_index_entries", "Entries of an index of fields"
        ),
    },
}
"""Metrics of the job, by what they are about. In CloudWatch a counter is what the last ten seconds added."""


def labels_of(kind: str) -> tuple[str, ...]:
    """Return the labels that all of the job's metrics of a kind have."""
    return next(iter(JOB[kind].values())).labels


FORMER_NAMES = {
    "http_requests_duration_ms": "http_requests_duration",
    "kafka_errors": "kafka_errors_count",
    "kafka_message_send_duration_ms": "kafka_message_send_duration",
    "kafka_messages_sent": "kafka_sent_messages",
    "kafka_producer_broker_receive_errors": "kafka_producer_broker_errors_count",
    "kafka_producer_broker_received_bytes": "kafka_producer_broker_bytes_received",
    "kafka_producer_broker_request_timeouts": "kafka_producer_request_timeouts",
    "kafka_producer_broker_requests": "kafka_producer_broker_requests_sent",
    "kafka_producer_broker_responses": "kafka_producer_broker_responses_count",
    "kafka_producer_broker_retries": "kafka_producer_broker_request_retries",
    "kafka_producer_broker_rtt_p99_us": "kafka_producer_broker_rtt_p99",
    "kafka_producer_broker_send_errors": "kafka_producer_broker_transmission_errors",
    "kafka_producer_broker_sent_bytes": "kafka_producer_broker_requests_sent_bytes",
    "kafka_producer_broker_state_age_us": "kafka_producer_broker_state_age",
    "kafka_producer_messages_sent": "kafka_producer_total_messages_sent",
    "kafka_producer_messages_sent_bytes": "kafka_producer_total_messages_bytes_sent",
    "kafka_producer_received_bytes": "kafka_producer_total_bytes_received",
    "kafka_producer_requests": "kafka_producer_total_requests_count",
    "kafka_producer_responses": "kafka_producer_total_responses_received",
    "kafka_producer_sent_bytes": "kafka_producer_total_bytes_sent",
    "kafka_producer_topic_batchsize_avg_bytes": "kafka_producer_topic_batchsize_avg",
    "kafka_producer_topic_metadata_age_ms": "kafka_producer_topic_metadata_age",
    "keylane_answer_age_ms": "keylane_answer_age",
    "keylane_topic_age_ms": "keylane_topic_age",
    "keylane_topic_clock_skew_ms": "keylane_topic_clock_skew",
    "keylane_view_age_ms": "keylane_view_age",
    "ratelimit_messages": "ratelimit_messages_count",
}
"""Of metrics whose name had no unit: their names in version 0.1. Version 0.2 shows both, the next one not."""
