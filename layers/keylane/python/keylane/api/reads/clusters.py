"""Kafka's clusters, and the health of what the functions use; the requests, and the responses."""

from collections.abc import Mapping, Sequence
from typing import Any

from keylane.api.http.json_response import render_json
from keylane.api.http.parameters import switch
from keylane.api.http.request import Request
from keylane.api.http.response import Response
from keylane.api.http.schemas import COUNT, FLAG, MAYBE_COUNT, MAYBE_TEXT, TEXT, Schema, an_array, an_object
from keylane.errors import KeylaneError
from keylane.explore.health import PartHealth
from keylane.model.kafka import ApiVersion, KafkaCluster

API_VERSIONS = switch("api_versions", "ask each broker which versions of Kafka's APIs it supports")
CLUSTERS = (API_VERSIONS,)


def parse_clusters(request: Request) -> bool:
    """Return whether a GET of the clusters asks for the versions of APIs. Raises BadRequest."""
    return bool(API_VERSIONS.of(request))


CLUSTERS_SCHEMA = Schema.of(
    "Clusters",
    clusters=an_array(
        an_object(
            optional=("why",),
            name={**TEXT, "description": "the name in KEYLANE_KAFKA_CLUSTERS, or default"},
            cluster_id=MAYBE_TEXT,
            why={**TEXT, "description": "why the cluster is unavailable"},
            controller=MAYBE_COUNT,
            brokers=an_array(
                an_object(
                    optional=("api_versions", "why"),
                    id=COUNT,
                    host=TEXT,
                    port=COUNT,
                    rack=MAYBE_TEXT,
                    api_versions={
                        "type": ["array", "null"],
                        "description": "with api_versions=true; null if the broker did not answer",
                        "items": an_object(
                            api_key=COUNT,
                            min_version=COUNT,
                            max_version=COUNT,
                        ),
                    },
                    why={**TEXT, "description": "why the broker did not answer"},
                )
            ),
        )
    ),
)


def render_clusters(
    clusters: Mapping[str, KafkaCluster | KeylaneError],
    versions: Mapping[tuple[str, int], Sequence[ApiVersion] | KeylaneError] | None = None,
) -> Response[str]:
    """`{"clusters": [{"name": "default", "cluster_id": ..., "controller": 1, "brokers": [{"id": 1, ...}]}]}`.

    A cluster that does not answer has no id, no brokers, and `why`. With `versions` each broker has
    `"api_versions": [{"api_key": 0, "min_version": 0, "max_version": 11}, ...]`, or null and `why`.
    """
    found = [_render_cluster(name, each, versions) for name, each in clusters.items()]
    return render_json({"clusters": found})


def _render_cluster(
    name: str,
    cluster: KafkaCluster | KeylaneError,
    versions: Mapping[tuple[str, int], Sequence[ApiVersion] | KeylaneError] | None,
) -> dict[str, Any]:
    if isinstance(cluster, KeylaneError):
        return {"name": name, "cluster_id": None, "controller": None, "brokers": [], "why": str(cluster)}
    return {
        "name": name,
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller,
        "brokers": [
            {"id": broker.number, "host": broker.host, "port": broker.port, "rack": broker.rack}
            | ({} if versions is None else _render_versions(versions[name, broker.number]))
            for broker in cluster.brokers
        ],
    }


def _render_versions(found: Sequence[ApiVersion] | KeylaneError) -> dict[str, Any]:
    if isinstance(found, KeylaneError):
        return {"api_versions": None, "why": str(found)}
    return {"api_versions": [each._asdict() for each in found]}


HEALTH_SCHEMA = Schema.of(
    "Health",
    live=FLAG,
    ready=FLAG,
    parts={
        "type": "object",
        "description": "by name: kafka, kafka.NAME for further clusters, and redis if it is configured",
        "additionalProperties": an_object(optional=("why",), ready=FLAG, took_ms=COUNT, why=TEXT),
    },
)


def render_health(parts: Mapping[str, PartHealth]) -> Response[str]:
    """200 if all parts are ready, else 503; `live` is true whenever the function answers."""
    rendered = {
        name: {"ready": part.why is None, "took_ms": part.took_ms, **({"why": part.why} if part.why else {})}
        for name, part in parts.items()
    }
    ready = all(part.why is None for part in parts.values())
    response = render_json({"live": True, "ready": ready, "parts": rendered})
    response.status_code = 200 if ready else 503
    response.headers["Cache-Control"] = "no-store"
    return response
