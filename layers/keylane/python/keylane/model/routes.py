"""Every route of the API in one table: its path, its methods, its function, and the permission that it needs.

The applications, the authorizer, template.yaml and docs/openapi.json are made from this table. The operation
of a route has the route's name, and declares its parameters and its answer.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

QUERY, EXPLORE, PRODUCE = "query", "explore", "produce"
FUNCTIONS = (QUERY, PRODUCE, EXPLORE)
READS = ("GET", "HEAD")
KEY_PATH = "/topics/{topic}/keys/{key}"
KEY_PATTERN = re.compile(r"/topics/([^/]*)/keys/([^/]*)/*")
"""Matches a key's path with an empty topic or key, and with slashes behind it, too."""
NAMED_BY = ("topic", "view")
V3_CLUSTER = "/v3/clusters/{cluster}"
V3_TOPIC = f"{V3_CLUSTER}/topics/{{topic}}"
V3_REPLICAS = f"{V3_TOPIC}/partitions/{{partition}}/replicas"
V3_BROKER = f"{V3_CLUSTER}/brokers/{{broker}}"
V3_GROUP = f"{V3_CLUSTER}/consumer-groups/{{group}}"
_PART = re.compile(r"\\\{\w+\\\}")
_NAME = re.compile(r"{(\w+)}")


class PermissionKind(Enum):
    """What a permission lets a caller do: read topics, write topics, or read views."""

    READ = "read"
    WRITE = "write"
    VIEWS = "views"


class Names(Enum):
    """Where a request names the topics or views that it is about."""

    PATH = "path"
    """The variable part of its path that is called topic or view."""
    TOPIC = "topic"
    """The query parameter of this name."""
    TOPICS = "topics"
    """The query parameter of this name, a list with commas."""
    ALL = "all"
    """Nowhere, or in its body: it may be about all of them."""
    NONE = "none"
    """It is about none: any caller that is known may send it."""
    BODY = "body"
    """In its body, one after the other: any caller that is known may send it, and the application decides on
    each by the caller's scope."""


class Permission(NamedTuple):
    """What a caller needs for a route, and where the request names what it is needed for."""

    kind: PermissionKind
    names: Names = Names.PATH


@dataclass(frozen=True)
class Route:
    """One route of the API. `name` is its operation's, too; `path` as in `/join/{key}`."""

    name: str
    path: str
    methods: tuple[str, ...]
    function: str
    permission: Permission

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the route's paths; its groups are the variable parts, percent-encoded."""
        if self.path == KEY_PATH:
            return KEY_PATTERN
        return re.compile(_PART.sub("([^/]+)", re.escape(self.path)))

    @cached_property
    def name_index(self) -> int:
        """Which variable part of the path names the topic or view."""
        return next(index for index, part in enumerate(_NAME.findall(self.path)) if part in NAMED_BY)


class Target(NamedTuple):
    """Where a request leads: its path without the base path, and the route there; None without one.

    `parts`: the variable parts of the path, percent-encoded; those of a key may be empty.
    """

    path: str
    route: Route | None = None
    parts: tuple[str, ...] = ()

    @property
    def function(self) -> str:
        """The function that answers the request; if no route takes it, the one that says so."""
        found = self.route or next(iter(routes_at(self.path)), None)
        return found.function if found else QUERY

    def names(self, query: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
        """Return the topics or views that a request names; None: it may be about all of them.

        Names in a path are percent-encoded. `query`: the values of each parameter.
        """
        names = self.route.permission.names if self.route else Names.NONE
        if self.route and names is Names.PATH:
            index = self.route.name_index
            return self.parts[index : index + 1]
        if names is Names.ALL:
            return None
        if names in (Names.NONE, Names.BODY):
            return ()
        return tuple(part for value in query.get(names.value) or () for part in value.split(","))


_READ = Permission(PermissionKind.READ)
_READ_OF_TOPIC = Permission(PermissionKind.READ, Names.TOPIC)
_READ_OF_TOPICS = Permission(PermissionKind.READ, Names.TOPICS)
_READ_ALL = Permission(PermissionKind.READ, Names.ALL)
_ANYONE = Permission(PermissionKind.READ, Names.NONE)
_IN_BODY = Permission(PermissionKind.READ, Names.BODY)
_WRITE = Permission(PermissionKind.WRITE)
_WRITE_ALL = Permission(PermissionKind.WRITE, Names.ALL)
_VIEWS = Permission(PermissionKind.VIEWS)

# If several routes share a path, the function of the first one answers a method that no route accepts.
ROUTES = (
    Route("get_key", KEY_PATH, READS, QUERY, _READ),
    Route("get_keys", "/topics/{topic}/keys", READS, QUERY, _READ),
    Route("get_key_count", "/topics/{topic}/count", READS, QUERY, _READ),
    Route("find_records", "/topics/{topic}/find", READS, QUERY, _READ),
    Route("get_history", "/topics/{topic}/keys/{key}/history", READS, QUERY, _READ),
    Route("get_key_changes", "/topics/{topic}/keys/{key}/changes", ("GET",), QUERY, _READ),
    Route("get_changes", "/topics/{topic}/changes", ("GET",), QUERY, _READ),
    Route("get_snapshot", "/topics/{topic}/snapshot", ("GET",), QUERY, _READ),
    Route("read_keys", "/topics/{topic}/keys:read", ("POST",), QUERY, _READ),
    Route("join_topics", "/join/{key}", READS, QUERY, _READ_OF_TOPICS),
    Route("get_windows", "/views/{view}/keys/{key}", READS, QUERY, _VIEWS),
    Route("get_view_keys", "/views/{view}/keys", READS, QUERY, _VIEWS),
    Route("get_views", "/views", READS, QUERY, Permission(PermissionKind.VIEWS, Names.ALL)),
    Route("get_view", "/views/{view}", READS, QUERY, _VIEWS),
    Route("get_partitions", "/metadata/partitions", READS, QUERY, _READ_OF_TOPIC),
    Route("mcp", "/mcp", ("POST",), QUERY, _IN_BODY),
    Route("get_topics", "/topics", READS, EXPLORE, _READ_ALL),
    Route("get_topic", "/topics/{topic}", READS, EXPLORE, _READ),
    Route("get_kafka_topic", "/topics/{topic}/partitions", READS, EXPLORE, _READ),
    Route("get_kafka_partition", "/topics/{topic}/partitions/{partition}", READS, EXPLORE, _READ),
    Route("get_schemas", "/topics/{topic}/schemas", READS, EXPLORE, _READ),
    Route("get_offset", "/topics/{topic}/partitions/{partition}/offsets", READS, EXPLORE, _READ),
    Route("get_records", "/topics/{topic}/partitions/{partition}/records", READS, EXPLORE, _READ),
    Route("get_clusters", "/clusters", READS, EXPLORE, _READ_ALL),
    Route("get_brokers", "/brokers", READS, EXPLORE, _READ_ALL),
    Route("get_health", "/health", READS, EXPLORE, _ANYONE),
    Route("get_v3_clusters", "/v3/clusters", READS, EXPLORE, _READ_ALL),
    Route("get_v3_cluster", V3_CLUSTER, READS, EXPLORE, _READ_ALL),
    Route("get_v3_brokers", f"{V3_CLUSTER}/brokers", READS, EXPLORE, _READ_ALL),
    Route("get_v3_broker", V3_BROKER, READS, EXPLORE, _READ_ALL),
    Route("get_v3_broker_configs", f"{V3_BROKER}/configs", READS, EXPLORE, _READ_ALL),
    Route("get_v3_broker_config", f"{V3_BROKER}/configs/{{name}}", READS, EXPLORE, _READ_ALL),
    Route("get_v3_groups", f"{V3_CLUSTER}/consumer-groups", READS, EXPLORE, _READ_ALL),
    Route("get_v3_group", V3_GROUP, READS, EXPLORE, _READ_ALL),
    Route("get_v3_consumers", f"{V3_GROUP}/consumers", READS, EXPLORE, _READ_ALL),
    Route("get_v3_lag_summary", f"{V3_GROUP}/lag-summary", READS, EXPLORE, _READ_ALL),
    Route("get_v3_lags", f"{V3_GROUP}/lags", READS, EXPLORE, _READ_ALL),
    Route("get_v3_topics", f"{V3_CLUSTER}/topics", READS, EXPLORE, _READ_ALL),
    Route("get_v3_topic", V3_TOPIC, READS, EXPLORE, _READ),
    Route("get_v3_topic_configs", f"{V3_TOPIC}/configs", READS, EXPLORE, _READ),
    Route("get_v3_topic_config", f"{V3_TOPIC}/configs/{{name}}", READS, EXPLORE, _READ),
    Route("get_v3_partitions", f"{V3_TOPIC}/partitions", READS, EXPLORE, _READ),
    Route("get_v3_partition", f"{V3_TOPIC}/partitions/{{partition}}", READS, EXPLORE, _READ),
    Route("get_v3_offsets", f"{V3_TOPIC}/partitions/{{partition}}/offset", READS, EXPLORE, _READ),
    Route("get_v3_replicas", V3_REPLICAS, READS, EXPLORE, _READ),
    Route("get_v3_replica", f"{V3_REPLICAS}/{{broker}}", READS, EXPLORE, _READ),
    Route("put_key", KEY_PATH, ("PUT",), PRODUCE, _WRITE),
    Route("delete_key", KEY_PATH, ("DELETE",), PRODUCE, _WRITE),
    Route("push", "/push", ("POST",), PRODUCE, _WRITE_ALL),
    Route("post_records", "/topics/{topic}", ("POST",), PRODUCE, _WRITE),
    Route("post_records_to_partition", "/topics/{topic}/partitions/{partition}", ("POST",), PRODUCE, _WRITE),
    Route("post_v3_records", f"{V3_TOPIC}/records", ("POST",), PRODUCE, _WRITE),
    Route("post_v3_batch", f"{V3_TOPIC}/records:batch", ("POST",), PRODUCE, _WRITE),
)
STREAMS = frozenset({"get_key_changes", "get_changes", "get_snapshot"})
"""Answered by `keylane serve` alone, for as long as the client listens, or reads."""
BY_NAME = {route.name: route for route in ROUTES}
_OF_KEY = {method: route for route in ROUTES if route.path == KEY_PATH for method in route.methods}
KEY_METHODS = tuple(_OF_KEY)
_BY_METHOD = {
    method: [route for route in ROUTES if method in route.methods]
    for method in dict.fromkeys(method for route in ROUTES for method in route.methods)
}


def routes_at(path: str) -> list[Route]:
    """Return all routes at a percent-encoded path, in the table's order."""
    return [route for route in ROUTES if route.pattern.fullmatch(path)]


def find(method: str, path: str) -> Target:
    """Return where a method and a percent-encoded path, without the base path, lead."""
    found = KEY_PATTERN.fullmatch(path)
    if found:
        # The route that has to be fast: the table's other patterns are not tried.
        return Target(path, _OF_KEY.get(method), found.groups())
    for route in _BY_METHOD.get(method, ()):  # a generator would take as long as the first pattern
        if found := route.pattern.fullmatch(path):
            return Target(path, route, found.groups())
    return Target(path)
