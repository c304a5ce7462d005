"""Kafka's topics and brokers as Confluent's REST Proxy v2 answers them, for clients whose `Accept` asks so.

    /topics                                   ["flights", "orders"]
    /topics/TOPIC                             {"name": "flights", "configs": {...}, "partitions": [...]}
    /topics/TOPIC/partitions                  [{"partition": 0, "leader": 1, "replicas": [...]}, ...]
    /topics/TOPIC/partitions/NUMBER           one of them
    /topics/TOPIC/partitions/NUMBER/offsets   {"beginning_offset": 0, "end_offset": 42}
    /brokers                                  {"brokers": [1, 2, 3]}

A replica is {"broker": 1, "leader": true, "in_sync": true}; the leader is -1 while there is none. `Accept`
names application/vnd.kafka.v2+json, application/vnd.kafka+json, or one of their kin, with a weight that is
not below that of application/json. All other clients get Keylane's own documents.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from keylane.api.http import problems
from keylane.api.http.preferences import weights_of
from keylane.api.http.request import Request
from keylane.api.http.response import Response
from keylane.api.http.schemas import COUNT, FLAG, TEXT, Schema, an_array, an_object
from keylane.api.rest_proxy.v2_answers import JSON, render_failure
from keylane.explore.topics import DescribedTopic
from keylane.model.kafka import KafkaCluster, KafkaPartition, KafkaTopic

_V2 = re.compile(r"application/vnd\.kafka(\.(binary|json|avro|jsonschema|protobuf))?(\.v[12])?\+json")
NO_LEADER = -1


def wants_rest_proxy(request: Request) -> bool:
    """Return whether the client prefers REST Proxy's documents to Keylane's."""
    accept = request.headers.get("accept", "")
    if "vnd.kafka" not in accept.lower():
        return False
    weights = weights_of(accept)
    weight = max((weight for name, weight in weights.items() if _V2.fullmatch(name)), default=0.0)
    return weight > 0 and weight >= weights.get("application/json", 0.0)


def render_read_error(request: Request, error: Exception) -> Response[str]:
    """Render an error of a read: with REST Proxy's members for its clients."""
    if wants_rest_proxy(request):
        return render_failure(request, error)
    return problems.response_to(error, request.id)


NAMES_SCHEMA = Schema("TopicNames", an_array(TEXT))


def render_names(names: Sequence[str]) -> Response[str]:
    """Render the names of all topics."""
    return _response(list(names))


_PARTITION: dict[str, Any] = {
    "partition": COUNT,
    "leader": {"type": "integer", "minimum": -1, "description": "the broker's number, -1 without a leader"},
    "replicas": an_array(an_object(broker=COUNT, leader=FLAG, in_sync=FLAG)),
}
PARTITION_SCHEMA = Schema.of("PartitionWithReplicas", **_PARTITION)
TOPIC_SCHEMA = Schema.of(
    "TopicWithConfigs",
    name=TEXT,
    configs={"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    partitions=an_array(PARTITION_SCHEMA),
)


def render_topic(described: DescribedTopic) -> Response[str]:
    """Render a topic with its settings and partitions."""
    topic, settings = described
    partitions = [_partition(each) for each in topic.partitions]
    return _response({"name": topic.name, "configs": dict(settings), "partitions": partitions})


PARTITIONS_SCHEMA = Schema("PartitionsWithReplicas", an_array(PARTITION_SCHEMA))


def render_partitions(topic: KafkaTopic) -> Response[str]:
    """Render a topic's partitions."""
    return _response([_partition(each) for each in topic.partitions])


def render_partition(topic: KafkaTopic, partition: int) -> Response[str]:
    """Render one partition."""
    return _response(_partition(topic.partitions[partition]))


ENDS_SCHEMA = Schema.of("PartitionEnds", beginning_offset=COUNT, end_offset=COUNT)


def render_ends(ends: tuple[int, int]) -> Response[str]:
    """Render a partition's first offset, and the one after its last."""
    return _response({"beginning_offset": ends[0], "end_offset": ends[1]})


BROKERS_SCHEMA = Schema.of("BrokerNumbers", brokers=an_array(COUNT))


def render_brokers(cluster: KafkaCluster) -> Response[str]:
    """Render the numbers of all brokers."""
    return _response({"brokers": [broker.number for broker in cluster.brokers]})


def _partition(partition: KafkaPartition) -> dict[str, Any]:
    leader = NO_LEADER if partition.leader is None else partition.leader
    replicas = [
        {"broker": broker, "leader": broker == leader, "in_sync": broker in partition.in_sync}
        for broker in partition.replicas
    ]
    return {"partition": partition.number, "leader": leader, "replicas": replicas}


def _response(document: Any) -> Response[str]:
    headers = {"Cache-Control": "no-cache", "Vary": "Accept", "X-Content-Type-Options": "nosniff"}
    return Response(200, JSON, json.dumps(document), headers)
