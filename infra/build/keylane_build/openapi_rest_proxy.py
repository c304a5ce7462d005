"""Schemas of what REST Proxy's clients read: topics and brokers of v2, resources of v3."""

from __future__ import annotations

from typing import Any

from keylane_build.openapi_terms import COUNT, FLAG, TEXT, a_list, an_object

_SIZED = an_object(
    ("type", "size"),
    type={"enum": ["BINARY", "JSON", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF"]},
    subject=TEXT,
    schema_id={"type": "integer"},
    schema_version={"type": "integer"},
    size={"type": "integer", "minimum": -1, "description": "bytes; -1 for null"},
)
_WRITTEN: dict[str, Any] = {
    "cluster_id": TEXT,
    "topic_name": TEXT,
    "partition_id": COUNT,
    "offset": COUNT,
    "timestamp": TEXT,
    "key": _SIZED,
    "value": _SIZED,
    "status": {"enum": ["queued"], "description": "the record is in the write-ahead log"},
}

_PARTITION: dict[str, Any] = {
    "partition": COUNT,
    "leader": {"type": "integer", "minimum": -1, "description": "the broker's number, -1 without a leader"},
    "replicas": {
        "type": "array",
        "items": an_object(("broker", "leader", "in_sync"), broker=COUNT, leader=FLAG, in_sync=FLAG),
    },
}
_PARTITION_SCHEMA = an_object(tuple(_PARTITION), **_PARTITION)
_METADATA = an_object(("self", "resource_name"), self=TEXT, resource_name=TEXT)
_LINK = an_object(("related",), related={**TEXT, "description": "a URL"})


def _resource(kind: str, links: tuple[str, ...], optional: tuple[str, ...] = (), **own: Any) -> Any:
    fields = {"kind": {"const": kind}, "metadata": _METADATA, "cluster_id": TEXT, **own}
    fields |= dict.fromkeys((*links, *optional), _LINK)
    return an_object(tuple(name for name in fields if name not in optional), **fields)


def _list(schema: str, kind: str) -> Any:
    metadata = an_object(("self", "next"), self=TEXT, next={"type": "null"})
    return an_object(
        ("kind", "metadata", "data"), kind={"const": kind}, metadata=metadata, data=a_list(schema)
    )


SCHEMAS: dict[str, Any] = {
    "V3Report": {
        "description": "of one record; several follow one another, each with CR and LF behind it",
        **an_object(
            ("error_code",),
            error_code={"type": "integer", "description": "200, or why the record was not written"},
            message=TEXT,
            id=TEXT,
            **_WRITTEN,
        ),
    },
    "V3Batch": an_object(
        ("successes", "failures"), successes=a_list("V3Success"), failures=a_list("V3Failure")
    ),
    "V3Success": an_object(("id", "cluster_id", "topic_name"), id=TEXT, record_id=TEXT, **_WRITTEN),
    "V3Failure": an_object(
        ("id", "error_code", "message"), id=TEXT, error_code={"type": "integer"}, message=TEXT
    ),
    "TopicNames": {"type": "array", "items": TEXT},
    "TopicWithConfigs": an_object(
        ("name", "configs", "partitions"),
        name=TEXT,
        configs={"type": "object", "additionalProperties": {"type": ["string", "null"]}},
        partitions=a_list("PartitionWithReplicas"),
    ),
    "PartitionsWithReplicas": a_list("PartitionWithReplicas"),
    "PartitionWithReplicas": _PARTITION_SCHEMA,
    "PartitionEnds": an_object(("beginning_offset", "end_offset"), beginning_offset=COUNT, end_offset=COUNT),
    "BrokerNumbers": an_object(("brokers",), brokers={"type": "array", "items": COUNT}),
    "V3Clusters": _list("V3Cluster", "KafkaClusterList"),
    "V3Cluster": _resource(
        "KafkaCluster",
        ("acls", "brokers", "broker_configs", "consumer_groups", "topics", "partition_reassignments"),
        ("controller",),
    ),
    "V3Topics": _list("V3Topic", "KafkaTopicList"),
    "V3Topic": _resource(
        "KafkaTopic",
        ("partitions", "configs", "partition_reassignments"),
        topic_name=TEXT,
        is_internal=FLAG,
        replication_factor=COUNT,
        partitions_count=COUNT,
    ),
    "V3Partitions": _list("V3Partition", "KafkaPartitionList"),
    "V3Partition": _resource(
        "KafkaPartition", ("replicas", "reassignment"), ("leader",), topic_name=TEXT, partition_id=COUNT
    ),
    "V3Offsets": _resource(
        "KafkaPartitionWithOffsets",
        (),
        topic_name=TEXT,
        partition_id=COUNT,
        earliest_offset=COUNT,
        latest_offset=COUNT,
    ),
}
