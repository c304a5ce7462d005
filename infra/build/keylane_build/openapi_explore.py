"""Schemas of the explore function's responses."""

from __future__ import annotations

from typing import Any

from keylane.explore import topics as explore
from keylane.model.kafka import ISOLATIONS
from keylane_build.openapi_terms import COUNT, FLAG, MAYBE_COUNT, MAYBE_TEXT, TEXT, VALUE, a_list, an_object

_ISOLATION = {"enum": list(ISOLATIONS)}
_IN_STATE = {
    "description": "whether Keylane keeps the topic's state",
    "enum": [explore.KEPT, explore.NOT_KEPT, explore.UNAVAILABLE, explore.NOT_CONFIGURED],
}
_PARTITION: dict[str, Any] = {
    "partition": COUNT,
    "leader": {**MAYBE_COUNT, "description": "the broker's id"},
    "replicas": {"type": "array", "items": COUNT},
    "in_sync": {"type": "array", "items": COUNT},
    "slot": {
        **MAYBE_COUNT,
        "maximum": 16383,
        "description": "Redis Cluster slot of the partition's first stripe",
    },
    "shard": {**MAYBE_TEXT, "description": "host:port of that slot's primary"},
}

SCHEMAS: dict[str, Any] = {
    "Topics": an_object(
        ("topics",),
        topics={"type": "array", "items": an_object(("topic", "partitions"), topic=TEXT, partitions=COUNT)},
        next={"type": "string", "description": "value of `after` for the next page; absent on the last page"},
    ),
    "KafkaTopic": an_object(
        ("topic", "topic_id", "internal", "state", "partitions"),
        topic=TEXT,
        topic_id=TEXT,
        internal=FLAG,
        state=_IN_STATE,
        partitions={"type": "array", "items": an_object(tuple(_PARTITION), **_PARTITION)},
    ),
    "KafkaPartition": an_object(("topic", "state", *_PARTITION), topic=TEXT, state=_IN_STATE, **_PARTITION),
    "Offset": an_object(
        ("topic", "partition", "at", "isolation", "offset", "timestamp"),
        topic=TEXT,
        partition=COUNT,
        at=TEXT,
        isolation=_ISOLATION,
        offset={**MAYBE_COUNT, "description": "null if there is no such record"},
        timestamp={**MAYBE_COUNT, "description": "timestamp of the record, if it was looked up by time"},
    ),
    "LogRecord": an_object(
        ("partition", "offset", "position", "timestamp", "key", "key_format", "headers", "value_format"),
        partition=COUNT,
        offset=COUNT,
        position=TEXT,
        timestamp={"type": ["integer", "null"]},
        timestamp_type={"enum": ["CreateTime", "LogAppendTime", None]},
        key=MAYBE_TEXT,
        key_format={"enum": ["text", "base64", "null"]},
        headers={**VALUE["headers"], "type": ["array", "null"]},
        value=VALUE["value"],
        value_format={"enum": ["json", "text", "base64", "left-in-kafka", "null"]},
        value_bytes=COUNT,
    ),
    "LogRecords": an_object(
        ("topic", "partition", "isolation", "records", "next_offset", "watermarks"),
        topic=TEXT,
        partition=COUNT,
        isolation=_ISOLATION,
        records=a_list("LogRecord"),
        next_offset={**COUNT, "description": "offset at which to continue"},
        watermarks={
            "description": "the partition's first offset, and the offset of its next record",
            **an_object(("low", "high"), low=COUNT, high=COUNT),
        },
    ),
    "Clusters": an_object(
        ("clusters",),
        clusters={
            "type": "array",
            "items": an_object(
                ("name", "cluster_id", "controller", "brokers"),
                name={**TEXT, "description": "the name in KEYLANE_KAFKA_CLUSTERS, or default"},
                cluster_id=MAYBE_TEXT,
                why={**TEXT, "description": "why the cluster is unavailable"},
                controller=MAYBE_COUNT,
                brokers={
                    "type": "array",
                    "items": an_object(
                        ("id", "host", "port", "rack"),
                        id=COUNT,
                        host=TEXT,
                        port=COUNT,
                        rack=MAYBE_TEXT,
                        api_versions={
                            "type": ["array", "null"],
                            "description": "with api_versions=true; null if the broker did not answer",
                            "items": an_object(
                                ("api_key", "min_version", "max_version"),
                                api_key=COUNT,
                                min_version=COUNT,
                                max_version=COUNT,
                            ),
                        },
                        why={**TEXT, "description": "why the broker did not answer"},
                    ),
                },
            ),
        },
    ),
    "Health": an_object(
        ("live", "ready", "parts"),
        live=FLAG,
        ready=FLAG,
        parts={
            "type": "object",
            "description": "by name: kafka, kafka.NAME for further clusters, and redis if it is configured",
            "additionalProperties": an_object(("ready", "took_ms"), ready=FLAG, took_ms=COUNT, why=TEXT),
        },
    ),
}
