"""Whatever product code keeps by a key, and what bounds its keys, its values and their count.

A client chooses the text of topics, hosts, tokens and numbers. A cache by such a text that has no bound on
its length first keeps 400 MB of a thousand requests: `lru_cache(1_024)` bounds their count alone.
"""

from __future__ import annotations

import ast
import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.project_files import ROOT

from keylane.access.grants import Grant
from keylane.access.policy import Policy
from keylane.api.http import preferences, request
from keylane.model import records
from keylane.model.routes import BY_NAME
from keylane.state import ordered
from keylane_server import access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDERS = {"layers/keylane/python": "", "server": "", "functions": "functions."}
CACHES = {"lru_cache", "cache"}
CONTAINERS = {"dict", "set", "defaultdict", "OrderedDict", "Counter", "deque", "CompiledSchemas"}


def found_caches() -> Iterator[str]:
    for folder, prefix in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = prefix + ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for name in _in_body(tree.body, ""):
                yield f"{module}:{name}"


def _in_body(body: list[Any], owner: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _in_body(node.body, f"{owner}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(_called(each) in CACHES for each in node.decorator_list):
                yield f"{owner}{node.name}"
            if node.name == "__init__":
                yield from _assigned(node.body, owner)
            inner = [each for statement in node.body for each in ast.walk(statement)]
            decorators = [each for part in inner for each in getattr(part, "decorator_list", ())]
            calls = [each for each in inner if isinstance(each, ast.Call)]
            if any(_called(each) in CACHES for each in (*calls, *decorators)):
                yield f"{owner}{node.name}()"
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not owner:
            yield from _assigned([node], owner)


def _assigned(body: list[Any], owner: str) -> Iterator[str]:
    """Containers that begin empty, as attributes or on the module."""
    for node in (each for statement in body for each in ast.walk(statement)):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        value = node.value.orelse if isinstance(node.value, ast.IfExp) else node.value
        inner = [value, node.value.body] if isinstance(node.value, ast.IfExp) else [value]
        names = {_called(each) for each in inner if isinstance(each, ast.Call)}
        is_empty = any(isinstance(each, ast.Dict) and not each.keys for each in inner)
        if is_empty or names & (CONTAINERS | CACHES):
            yield f"{owner}{target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)}"


def _called(node: Any) -> str:
    """Return the name of a decorator, or of what is called."""
    if isinstance(node, ast.Call):
        return _called(node.func)
    if isinstance(node, ast.Subscript):
        return _called(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


REQUEST = "one request, or what it makes: it ends with it"
OPERATOR = "settings, or options of topics, which the operator writes"
CLUSTER = "nodes, slots or brokers of a cluster"
STORED = "topics that have a layout in Redis, or partitions of them"
KAFKA = "topics that Kafka has"
RUNNING = "what runs or waits now, which admission control bounds; it is taken out at its end"
FIXED = "names of the product's own: functions, metrics, headers of answers"
BOUNDS = {
    "keylane.adapters.aws.references:_provider": FIXED,
    "keylane.adapters.kafka.clients:RareRepeats._said": "a number, 1,000 lines of librdkafka",
    "keylane.adapters.kafka.metrics:KafkaMetrics._topics": KAFKA,
    "keylane.adapters.kafka.metrics:KafkaMetrics._totals": KAFKA,
    "keylane.adapters.kafka.partitions:PartitionResolver._counts": KAFKA,
    "keylane.adapters.kafka.partitions:PartitionResolver._turns": KAFKA,
    "keylane.adapters.kafka.producer:KafkaProducer._open": "two clients",
    "keylane.adapters.kafka.producer:KafkaProducer._unknown_topics": "names of 249, UNKNOWN_TOPICS_LIMIT",
    "keylane.adapters.kafka.reader:KafkaReader._consumers": "two levels of isolation",
    "keylane.adapters.kafka.refusals:Refusals._least": "topics that Kafka has, LIMIT",
    "keylane.adapters.kafka.shipment:Shipment._looked_up": REQUEST,
    "keylane.adapters.kafka.shipment:Shipment._unknown": REQUEST,
    "keylane.adapters.kafka.shipment:Shipment._unsent": REQUEST,
    "keylane.adapters.kafka.shipment:_Attempt.unreported": REQUEST,
    "keylane.adapters.open_telemetry:SdkMessages._said_s": "the SDK's own sentences, without their values",
    "keylane.adapters.redis.cluster:Cluster._opened": CLUSTER,
    "keylane.adapters.redis.rate_limits:RedisRateLimiter._open_until_s": CLUSTER,
    "keylane.adapters.redis.replicas:SlotReader._migrating": CLUSTER,
    "keylane.adapters.redis.replicas:SlotReader._unhealthy": CLUSTER,
    "keylane.adapters.redis.slot_map:SlotMap.connections": CLUSTER,
    "keylane.adapters.registry.client:RegistryClient._foreign": "subjects of topics, FOREIGN_IDS_LIMIT",
    "keylane.adapters.registry.client:RegistryClient._versions": "subjects of topics, VERSIONS_LIMIT",
    "keylane.adapters.registry.compiled:CompiledSchemas._kept": "LIMIT_BYTES, of 1 MiB of text at most each",
    "keylane.adapters.registry.decoders:RegistryDecoders._compiled": "LIMIT_BYTES",
    "keylane.adapters.registry.decoders:RegistryDecoders._known": "LIMIT_BYTES",
    "keylane.adapters.registry.encoders:RegistryEncoders._compiled": "LIMIT_BYTES, keys of 1 MiB, counted",
    "keylane.adapters.registry.json_schema_cost:_CostWalk._way": REQUEST,
    "keylane.adapters.registry.protobuf_budget:Budget._sizes": "types of one schema",
    "keylane.adapters.registry.protobuf_budget:Budget._symbols": "types of one schema",
    "keylane.adapters.registry.value_checks:ValueChecks._compiled": "LIMIT_BYTES",
    "keylane.api.http.http_date:_http_day": "a number, 1,024",
    "keylane.api.http.preferences:_weights_of": "LONGEST_ACCEPT, 128",
    "keylane.api.http.request:_is_host": "_LONGEST_HOST, 1,024",
    "keylane.api.http.router:BYTES": "nothing is added",
    "keylane.api.reads.change_conditions:ConditionedChanges._outside": "OUTSIDE_LIMIT of one stream",
    "keylane.api.reads.change_sources:TopicChanges._seen": STORED,
    "keylane.adapters.issuers.verifier:TokenVerifier._sets": OPERATOR,
    "keylane.api.reads.envelope:Envelopes._common": REQUEST,
    "keylane.query.row_scopes:RowScopes._known": "topics that a caller names, MOST_KNOWN",
    "keylane.query.field_scan:FieldScan._ahead": "values of a rule, MOST_DRIVEN",
    "keylane.app.authorizer:build()": "one result",
    "keylane.app.user_pool:PoolGuard.__init__()": "one result",
    "keylane.app.user_pool:PoolGuard._is_audited": "one result",
    "keylane.app.user_pool:PoolGuard._read_pool": "one result",
    "keylane.app.user_pool:PoolGuard._read_settings": "one result",
    "keylane.formats.avro_schema:_Walk._types": "types of one schema",
    "keylane.formats.connect_keys:keys_with_schema": OPERATOR,
    "keylane.metrics.emf:Distribution.counts": "buckets",
    "keylane.metrics.emf:EmfLog._distributions": "as `Meter._labels`",
    "keylane.metrics.emf:EmfLog._numbers": "as `Meter._labels`",
    "keylane.metrics.meter:Meter._labels": "names of topics and of the product, LABELS_LIMIT of a metric",
    "keylane.model.patterns:_compiled": OPERATOR,
    "keylane.model.records:_is_topic_name": "_LONGEST_TOPIC, 1,000",
    "keylane.produce.topic_formats:TopicFormats._earlier": "a number, 1,000 topics that may be written",
    "keylane.query.decoding:ValueDecoder._found": REQUEST,
    "keylane.query.dictionaries:Dictionaries._kept": "MOST_KEPT",
    "keylane.query.lane_snapshot:LaneSnapshot._begin": STORED,
    "keylane.query.lane_snapshot:LaneSnapshot._yielded": "digests of keys, MOST_NOTED",
    "keylane.query.layouts:Layouts._kept": STORED,
    "keylane.query.store:Watermarks.by_lane": REQUEST,
    "keylane.routing:_ones": "a number, 16",
    "keylane.routing:hash_tag": CLUSTER,
    "keylane.routing:lane_finder": OPERATOR,
    "keylane.routing:separator_of": OPERATOR,
    "keylane.state.codec:decode_watermark": "WATERMARK_BYTES, 4,096: other bytes raise, which is not kept",
    "keylane.state.compression:no_dictionary": FIXED,
    "keylane.state.compression:zstandard": FIXED,
    "keylane.state.field_index:_indexes": OPERATOR,
    "keylane.state.json_keys:json_keys": OPERATOR,
    "keylane.state.lanes:_lane_at": STORED,
    "keylane.state.ordered:_known_number": "_LONGEST_KNOWN, 4,096",
    "keylane.state.ordered:_known_time": "_LONGEST_KNOWN, 4,096",
    "keylane.wiring.guards:build_checks()": "one result",
    "keylane.wiring.query:build_query()": "one result",
    "keylane.wiring.schemas:open_circuit()": "one result",
    "keylane.wiring.schemas:reading_schemas()": "one result",
    "keylane.wiring.schemas:writing_schemas()": "one result",
    "keylane_server.access:TokenAuthorizer._granted": "LONGEST_GRANTED of known tokens, GRANTED_LIMIT",
    "keylane_server.lookups:PlainLookups._scoped": "decisions that are remembered, MOST_CALLERS",
    "keylane_server.issued_tokens:IssuedTokens._fetching": RUNNING,
    "keylane_server.issued_tokens:IssuedTokens._remembered": "LONGEST_REMEMBERED, REMEMBERED_LIMIT",
    "keylane_server.admission:AdmissionControl._of_address": RUNNING,
    "keylane_server.admission:Places._waiting": RUNNING,
    "keylane_server.app:ServerApp._answering": RUNNING,
    "keylane_server.greenlets:_giving_way": RUNNING,
    "keylane_server.child_main:_ThreadRuntime.applications": FIXED,
    "keylane_server.child_process:_Process._waiting": RUNNING,
    "keylane_server.shared_calls:_Flight._waiting": RUNNING,
    "keylane_server.kafka.shared_client:SharedClient._metadata": RUNNING,
    "keylane_server.kafka.shared_client:SharedClient._reports": RUNNING,
    "keylane_server.kafka.shared_client:SharedClient.waiting": RUNNING,
    "keylane_server.lines:LineBodies._bodies": "MOST_SNAPSHOTS",
    "keylane_server.metrics:ServerMetrics._metrics": FIXED,
    "keylane_server.metrics:ServerMetrics._refusals": "statuses",
    "keylane_server.pages:OwnPages._files": "the console's folder",
    "keylane_server.received:ReceivedRequest.last": REQUEST,
    "keylane_server.received:_NO_QUERY": "nothing is added",
    "keylane_server.redis.shared_cluster:SharedCluster._connecting": CLUSTER,
    "keylane_server.redis.shared_cluster:SharedCluster._of_many": CLUSTER,
    "keylane_server.redis.shared_connection:SharedConnection._pending": RUNNING,
    "keylane_server.redis.shared_layouts:SharedLayouts._calls": RUNNING,
    "keylane_server.replies:ReplyBudget._waiting": RUNNING,
    "keylane_server.sending:Outbox._of_address": RUNNING,
    "keylane_server.sending:Outbox._of_connection": RUNNING,
    "keylane_server.sending:Outbox._stalled": RUNNING,
    "keylane_server.streamed_bodies:Turns._waiting": RUNNING,
    "keylane_server.sites:_is_local": "a host: _LONGEST_HOST, 1,024",
    "keylane_server.streams:ChangeFeed._behind": RUNNING,
    "keylane_server.streams:ChangeFeed._kept": "BUFFER_BYTES, FEEDS_BYTES",
    "keylane_server.streams:ChangeFeed.holders": RUNNING,
    "keylane_server.streams:ChangeFeed.listeners": RUNNING,
    "keylane_server.streams:ChangeStreams._feeds": RUNNING,
    "keylane_server.streams:ChangeStreams._streams": RUNNING,
    "keylane_server.time_limits:TimeLimits._expires_s": RUNNING,
}
"""What bounds a cache: whose its keys and values are, or the bound on a key's length, and the count."""


def test_what_bounds_each_cache_is_known():
    assert set(found_caches()) == set(BOUNDS)


@pytest.mark.parametrize(
    ("ask", "cache"),
    [
        (request.is_host, request._is_host),
        (preferences.weights_of, preferences._weights_of),
        (records.is_topic_name, records._is_topic_name),
        (lambda text: ordered.encode_number("1." + "0" * len(text)), ordered._known_number),
        (lambda text: ordered.encode_time("1." + "0" * len(text)), ordered._known_time),
    ],
    ids=["host", "accept", "topic", "number", "time"],
)
def test_a_long_text_of_a_client_is_not_kept(ask: Callable[[str], object], cache: Any):
    ask("a")
    before = cache.cache_info()
    ask("a/b," * 1_000)
    assert cache.cache_info() == before


def test_a_token_behind_many_spaces_is_not_kept():
    found = object.__new__(access.TokenAuthorizer)
    found._granted = {}
    token = b"x" * 20
    found._policy = Policy({hashlib.sha256(token).hexdigest(): Grant("caller", ("*",))})
    route, names = BY_NAME["get_key"], ("orders",)
    for spaces, is_found in ((access.LONGEST_GRANTED, True), (access.LONGEST_REMEMBERED, False)):
        recalled = found.recall(b"Bearer" + b" " * spaces + token, route, names)
        assert (recalled is not None) == is_found
        assert not found._granted
    assert found.recall(b"Bearer " + token, route, names) is not None
    assert len(found._granted) == 1
