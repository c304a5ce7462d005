"""Clusters, topics and partitions as Confluent's REST Proxy v3 answers them: resources with links.

    {"kind": "KafkaTopic",
     "metadata": {"self": "https://HOST/v3/clusters/ID/topics/t", "resource_name": "crn:///kafka=ID/topic=t"},
     "cluster_id": ID, "topic_name": "t", "partitions_count": 9, "partitions": {"related": URL}, ...}

A list is {"kind": "KafkaTopicList", "metadata": {"self": URL, "next": null}, "data": [...]}. Links to what
Keylane does not serve (ACLs, reassignments, assignments of consumers) are there, as clients expect
the fields, and are 404. Errors have REST Proxy's `error_code` and `message`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias
from urllib.parse import quote

from keylane import errors
from keylane.api.http.json_response import render_json
from keylane.api.http.request import Request, is_host
from keylane.api.http.response import Response
from keylane.api.http.schemas import COUNT, FLAG, TEXT, Schema, an_array, an_object
from keylane.api.rest_proxy.v2_answers import render_failure
from keylane.model.kafka import KafkaCluster, KafkaPartition, KafkaTopic

Parts: TypeAlias = tuple[str | int, ...]

CLUSTERS = "/v3/clusters"
_SCHEMES = ("http", "https")
CODES = {errors.UnknownTopic: 40403, errors.UnknownPartition: 404}
"""Where they differ from those of v2."""


@dataclass(frozen=True, slots=True)
class Links:
    """Makes the links of one response. `base`: of the API, without a slash at its end."""

    base: str

    @classmethod
    def of(cls, request: Request) -> Self:
        """Make links as the client sees the API: by its host, stage and base path.

        What is no host or scheme is in no link.
        """
        host = request.headers.get("host", "")
        host = host if is_host(host) else "localhost"
        # A domain of one's own has no stage in its paths.
        is_gateway = ".execute-api." in host
        root_path = request.root_path if is_gateway else ""
        scheme = request.headers.get("x-forwarded-proto", "")
        scheme = scheme if scheme in _SCHEMES else "https" if is_gateway else "http"
        return cls(f"{scheme}://{host}{root_path}{request.path.partition(CLUSTERS)[0]}")

    def related(self, *parts: str | int) -> dict[str, str]:
        """A link to another resource."""
        return {"related": self.url(*parts)}

    def url(self, *parts: str | int) -> str:
        """The address of the resource at these parts of the path, below the clusters."""
        return "/".join((f"{self.base}{CLUSTERS}", *(quote(str(part), safe="") for part in parts)))


def render_v3_error(request: Request, error: Exception) -> Response[str]:
    """Render an error of a read of v3."""
    return render_failure(request, error, CODES)


_METADATA = an_object(self=TEXT, resource_name=TEXT)
_LINK = an_object(related={**TEXT, "description": "a URL"})


def resource_schema(
    name: str, kind: str, links: tuple[str, ...], optional: tuple[str, ...] = (), /, **own: Any
) -> Schema:
    """Return the schema of a resource with these links, and with fields of its own."""
    fields = {"kind": {"const": kind}, "metadata": _METADATA, "cluster_id": TEXT, **own}
    fields |= dict.fromkeys((*links, *optional), _LINK)
    return Schema.of(name, optional=optional, **fields)


def list_schema(name: str, kind: str, row: Schema) -> Schema:
    """Return the schema of a list of resources."""
    metadata = an_object(self=TEXT, next={"type": "null"})
    fields = {"kind": {"const": kind}, "metadata": metadata, "data": an_array(row)}
    return Schema.of(name, **fields)


CLUSTER_SCHEMA = resource_schema(
    "V3Cluster",
    "KafkaCluster",
    ("acls", "brokers", "broker_configs", "consumer_groups", "topics", "partition_reassignments"),
    ("controller",),
)
TOPIC_SCHEMA = resource_schema(
    "V3Topic",
    "KafkaTopic",
    ("partitions", "configs", "partition_reassignments"),
    topic_name=TEXT,
    is_internal=FLAG,
    replication_factor=COUNT,
    partitions_count=COUNT,
)
PARTITION_SCHEMA = resource_schema(
    "V3Partition",
    "KafkaPartition",
    ("replicas", "reassignment"),
    ("leader",),
    topic_name=TEXT,
    partition_id=COUNT,
)
OFFSETS_SCHEMA = resource_schema(
    "V3Offsets",
    "KafkaPartitionWithOffsets",
    (),
    topic_name=TEXT,
    partition_id=COUNT,
    earliest_offset=COUNT,
    latest_offset=COUNT,
)
CLUSTERS_SCHEMA = list_schema("V3Clusters", "KafkaClusterList", CLUSTER_SCHEMA)
TOPICS_SCHEMA = list_schema("V3Topics", "KafkaTopicList", TOPIC_SCHEMA)
PARTITIONS_SCHEMA = list_schema("V3Partitions", "KafkaPartitionList", PARTITION_SCHEMA)


def render_clusters(links: Links, clusters: Sequence[KafkaCluster]) -> Response[str]:
    """Render all clusters."""
    return render_list(links, "KafkaClusterList", (), [_cluster(links, each) for each in clusters])


def render_cluster(links: Links, cluster: KafkaCluster) -> Response[str]:
    """Render one cluster."""
    return render_json(_cluster(links, cluster))


def render_topics(links: Links, cluster_id: str, topics: Sequence[KafkaTopic]) -> Response[str]:
    """Render a cluster's topics."""
    data = [_topic(links, cluster_id, each) for each in topics]
    return render_list(links, "KafkaTopicList", (cluster_id, "topics"), data)


def render_topic(links: Links, cluster_id: str, topic: KafkaTopic) -> Response[str]:
    """Render one topic."""
    return render_json(_topic(links, cluster_id, topic))


def render_partitions(links: Links, cluster_id: str, topic: KafkaTopic) -> Response[str]:
    """Render a topic's partitions."""
    data = [_partition(links, cluster_id, topic.name, each) for each in topic.partitions]
    return render_list(links, "KafkaPartitionList", (cluster_id, "topics", topic.name, "partitions"), data)


def render_partition(links: Links, cluster_id: str, topic: KafkaTopic, partition: int) -> Response[str]:
    """Render one partition."""
    return render_json(_partition(links, cluster_id, topic.name, topic.partitions[partition]))


def render_offsets(
    links: Links, cluster_id: str, topic: str, partition: int, ends: tuple[int, int]
) -> Response[str]:
    """Render a partition's first offset, and the one after its last."""
    path = (cluster_id, "topics", topic, "partitions", partition, "offset")
    return render_json(
        {
            **resource(links, "KafkaPartitionWithOffsets", path, "offset_type=earliest_and_latest"),
            "topic_name": topic,
            "partition_id": partition,
            "earliest_offset": ends[0],
            "latest_offset": ends[1],
        }
    )


def _cluster(links: Links, cluster: KafkaCluster) -> dict[str, Any]:
    own = cluster.cluster_id
    document = resource(links, "KafkaCluster", (own,))
    if cluster.controller is not None:
        document["controller"] = links.related(own, "brokers", cluster.controller)
    return document | {
        "acls": links.related(own, "acls"),
        "brokers": links.related(own, "brokers"),
        "broker_configs": links.related(own, "broker-configs"),
        "consumer_groups": links.related(own, "consumer-groups"),
        "topics": links.related(own, "topics"),
        "partition_reassignments": links.related(own, "topics", "-", "partitions", "-", "reassignment"),
    }


def _topic(links: Links, cluster_id: str, topic: KafkaTopic) -> dict[str, Any]:
    path = (cluster_id, "topics", topic.name)
    return {
        **resource(links, "KafkaTopic", path),
        "topic_name": topic.name,
        "is_internal": topic.internal,
        "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
        "partitions_count": len(topic.partitions),
        "partitions": links.related(*path, "partitions"),
        "configs": links.related(*path, "configs"),
        "partition_reassignments": links.related(*path, "partitions", "-", "reassignment"),
    }


def _partition(links: Links, cluster_id: str, topic: str, partition: KafkaPartition) -> dict[str, Any]:
    number = partition.number
    path = (cluster_id, "topics", topic, "partitions", number)
    document = {
        **resource(links, "KafkaPartition", path),
        "topic_name": topic,
        "partition_id": number,
    }
    if partition.leader is not None:
        document["leader"] = links.related(*path, "replicas", partition.leader)
    return document | {
        "replicas": links.related(*path, "replicas"),
        "reassignment": links.related(*path, "reassignment"),
    }


def resource(links: Links, kind: str, path: Parts, last: str = "") -> dict[str, Any]:
    """Return what every resource has. `path`: from the id of its cluster on.

    Confluent's name of a resource is made of its path, with an empty authority: `topics/t` becomes `topic=t`.
    `last`: the end of the name, where it is not that of the path.
    """
    cluster_id, *rest = map(str, path)
    pairs = [f"{name.removesuffix('s')}={value}" for name, value in zip(rest[::2], rest[1::2], strict=False)]
    alone = rest[-1:] if len(rest) % 2 else []
    name = "crn:///" + "/".join([f"kafka={cluster_id}", *pairs, *([last] if last else alone)])
    metadata = {"self": links.url(*path), "resource_name": name}
    return {"kind": kind, "metadata": metadata, "cluster_id": cluster_id}


def render_list(links: Links, kind: str, path: Parts, data: Sequence[dict[str, Any]]) -> Response[str]:
    """Render a list of resources."""
    head = {"kind": kind, "metadata": {"self": links.url(*path), "next": None}}
    return render_json({**head, "data": list(data)})
