"""The description of a topic, its partitions' nodes, and the count of its keys: requests and responses."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from keylane.api.http.common_parameters import MAX_AGE_MS, PARTIAL, TOPIC_PATTERN, parse_terms
from keylane.api.http.json_response import freshness_of_lanes, render_fresh, render_json
from keylane.api.http.parameters import Parameter, text
from keylane.api.http.request import topic_name, topic_of
from keylane.api.http.schemas import (
    COUNT,
    FLAG,
    FRESHNESS,
    MAYBE_COUNT,
    TEXT,
    UNSURE,
    Schema,
    an_array,
    an_object,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.api.http.request import Request
    from keylane.api.http.response import Response
    from keylane.config.functions import QuerySettings
    from keylane.model.records import Options, Watermark
    from keylane.query.key_count import KeyCount
    from keylane.query.store import ReadTerms
    from keylane.query.summaries import TopicSummary
    from keylane.query.topics import LaneView, NextGeneration, TopicView
    from keylane.state.lanes import Lane

TOPIC = text("topic", "a topic", 249, TOPIC_PATTERN, required=True)
METADATA: tuple[Parameter, ...] = (TOPIC,)


def parse_metadata(request: Request) -> str:
    """Parse a GET of a topic's partitions: the topic's name. Raises BadRequest."""
    return topic_name(TOPIC.of(request), "topic")


_TOTALS = {"building": FLAG, "incomplete": FLAG, "missed_deletions": FLAG, "lag": COUNT, "age_ms": COUNT}
_STRAYS = {"type": "object", "additionalProperties": COUNT}
SUMMARY_SCHEMA = Schema.of(
    "TopicSummary",
    optional=("missed_deletions", "age_ms"),
    generation=COUNT,
    **_TOTALS,
    strays=_STRAYS,
    log_end={**COUNT, "description": "of all partitions together, as the job last saw them"},
    keys={**MAYBE_COUNT, "description": "null without an index"},
    memory_bytes={**MAYBE_COUNT, "description": "about what they take in Redis; null if not known"},
)
LANE_SCHEMA = Schema.of(
    "Lane",
    optional=("missed_deletions", "has_strays", "age_ms"),
    partition=COUNT,
    stripe=COUNT,
    slot={"type": "integer", "minimum": 0, "maximum": 16383},
    shard=TEXT,
    next_offset=COUNT,
    log_end=COUNT,
    lag=COUNT,
    building=FLAG,
    incomplete=FLAG,
    missed_deletions=FLAG,
    has_strays=FLAG,
    age_ms=COUNT,
)
NEXT_SCHEMA = {
    **an_object(generation=COUNT, percent={"type": ["integer", "null"], "minimum": 0, "maximum": 100}),
    "description": "the generation that is being built beside this one, and how much of the log it has",
}
TOPIC_SCHEMA = Schema.of(
    "Topic",
    optional=("building", "incomplete", "missed_deletions", "lag", "age_ms", "strays", "next"),
    topic=TEXT,
    partitions=COUNT,
    stripes=COUNT,
    partitioner={"enum": ["murmur2", "crc32", "fnv1a"]},
    partition_by={"type": "string", "pattern": "^(key|prefix:.+)$"},
    generation=COUNT,
    options={"type": "object"},
    **_TOTALS,
    strays=_STRAYS,
    next=NEXT_SCHEMA,
    lanes=an_array(LANE_SCHEMA),
)


def render_topic(topic: TopicView, now_ms: int) -> Response[str]:
    """Render layout, options, totals, and each lane.

    `age_ms` is missing where a lane was never complete, `missed_deletions` where it would be false.
    """
    layout = topic.layout
    return render_json(
        {
            "topic": layout.topic,
            "partitions": layout.partition_count,
            "stripes": layout.stripes,
            "partitioner": layout.partitioner,
            "partition_by": layout.partition_by,
            "generation": layout.generation,
            "options": _render_options(layout.options),
            **render_totals([(each.lane, each.watermark) for each in topic.lanes], now_ms),
            "strays": {"strays": 0} | topic.strays,
            **render_next(topic.next),
            "lanes": [_render_lane(lane, now_ms) for lane in topic.lanes],
        }
    )


def render_summary(summary: TopicSummary, now_ms: int) -> dict[str, Any]:
    """Return how a topic is: its totals, the end of its log, and what its keys take in Redis."""
    ends: dict[int, int] = {}
    for lane, watermark in summary.lanes:
        ends[lane.partition] = max(ends.get(lane.partition, 0), watermark.log_end if watermark else 0)
    return {
        "generation": summary.layout.generation,
        **render_totals(summary.lanes, now_ms),
        "strays": {"strays": 0} | summary.strays,
        "log_end": sum(ends.values()),
        "keys": summary.keys,
        "memory_bytes": summary.memory_bytes,
    }


def render_totals(lanes: Sequence[tuple[Lane, Watermark | None]], now_ms: int) -> dict[str, Any]:
    """Return what all lanes say together: a topic is as old as its oldest lane."""
    watermarks = [watermark for _, watermark in lanes if watermark]
    complete = [watermark.complete_as_of_ms for watermark in watermarks if watermark.complete_as_of_ms]
    is_building = len(complete) < len(lanes)
    # All stripes of a partition read the same records.
    behind: dict[int, int] = {}
    for lane, watermark in lanes:
        behind[lane.partition] = max(watermark.lag if watermark else 0, behind.get(lane.partition, 0))
    return {
        "building": is_building,
        "incomplete": any(watermark.incomplete for watermark in watermarks),
        **({"missed_deletions": True} if any(watermark.missed_deletions for watermark in watermarks) else {}),
        "lag": sum(behind.values()),
        **({} if is_building else {"age_ms": max(0, now_ms - min(complete))}),
    }


def render_next(found: NextGeneration | None) -> dict[str, Any]:
    """Return the field `next` of a topic or a view; nothing where nothing is being built beside it."""
    return {"next": {"generation": found.generation, "percent": found.percent}} if found else {}


def _render_options(options: Options) -> dict[str, Any]:
    return {name: value for name, value in asdict(options).items() if name != "view"}


def _render_lane(view: LaneView, now_ms: int) -> dict[str, Any]:
    lane, watermark = view.lane, view.watermark
    fields = {
        "partition": lane.partition,
        "stripe": lane.stripe,
        "slot": lane.slot,
        "shard": view.shard,
        "next_offset": watermark.next_offset if watermark else 0,
        "log_end": watermark.log_end if watermark else 0,
        "lag": watermark.lag if watermark else 0,
        "building": not (watermark and watermark.complete_as_of_ms),
        "incomplete": bool(watermark and watermark.incomplete),
        **({"missed_deletions": True} if watermark and watermark.missed_deletions else {}),
        "has_strays": bool(watermark and watermark.has_strays),
    }
    if watermark and watermark.complete_as_of_ms:
        fields["age_ms"] = max(0, now_ms - watermark.complete_as_of_ms)
    return fields


PARTITIONS_SCHEMA = Schema(
    "Partitions",
    {
        "type": "object",
        "description": "partitions by the host:port that serves them",
        "additionalProperties": an_array(COUNT),
    },
)


def render_partitions(partitions: dict[str, list[int]]) -> Response[str]:
    """Render `{"host:port": [0, 1, 2], ...}`."""
    return render_json(partitions)


COUNT_OF_KEYS: tuple[Parameter, ...] = (PARTIAL, MAX_AGE_MS)


@dataclass(frozen=True, slots=True)
class CountRequest:
    """A count of a topic's keys."""

    topic: str
    terms: ReadTerms


def parse_count(request: Request, topic: str, settings: QuerySettings) -> CountRequest:
    """Parse a GET of the count of a topic's keys. Raises BadRequest."""
    return CountRequest(topic_of(topic), parse_terms(request, settings))


KEY_COUNT_SCHEMA = Schema.of("KeyCount", optional=UNSURE, count=COUNT, **FRESHNESS)


def render_count(found: KeyCount, now_ms: int) -> Response[str]:
    """Render `{"count": 9, "watermarks": {...}, "age_ms": 212}`."""
    return render_fresh(f'"count": {found.count}', freshness_of_lanes(found.watermarks, now_ms))
