"""Requests for the description of a topic, and their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keylane.api.event import query_of, topic_name
from keylane.api.parameters import Parameter, text

if TYPE_CHECKING:
    from keylane.api.event import Event
    from keylane.api.response import Response
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keylane.model.records import Options
    from keylane.query import topics
from keylane.api.document import plain
from keylane.api.terms import NAME

TOPIC = text("topic", "a topic", 249, NAME, required=True)


METADATA: tuple[Parameter, ...] = (TOPIC,)


def metadata_request(event: Event) -> str:
    """Parse a GET of a topic's partitions: its name. Raises BadRequest."""
    return topic_name(TOPIC.of(query_of(event)), "topic")


def of_topic(topic: topics.TopicView, now_ms: int) -> Response[str]:
    """Layout, options, totals, and each lane; `age_ms` is missing where a lane was never whole."""
    layout = topic.layout
    lanes = [_lane(lane, now_ms) for lane in topic.lanes]
    ages = [lane["age_ms"] for lane in lanes if "age_ms" in lane]
    return plain(
        {
            "topic": layout.topic,
            "partitions": layout.partition_count,
            "stripes": layout.stripes,
            "partitioner": layout.partitioner,
            "partition_by": layout.partition_by,
            "generation": layout.generation,
            "options": _options(layout.options),
            "building": any(lane["building"] for lane in lanes),
            "incomplete": any(lane["incomplete"] for lane in lanes),
            "lag": sum(lane["lag"] for lane in lanes),
            **({"age_ms": max(ages)} if len(ages) == len(lanes) else {}),
            "strays": {"strays": 0} | topic.strays,
            "lanes": lanes,
        }
    )


def _options(options: Options) -> dict[str, Any]:
    return {name: value for name, value in asdict(options).items() if name != "view"}


def _lane(lane: topics.LaneView, now_ms: int) -> dict[str, Any]:
    home, mark = lane.home, lane.watermark
    next_offset = mark.next_offset if mark else 0
    log_end = mark.log_end if mark else 0
    described = {
        "partition": home.partition,
        "stripe": home.stripe,
        "slot": home.slot,
        "shard": lane.shard,
        "next_offset": next_offset,
        "log_end": log_end,
        "lag": max(0, log_end - next_offset),
        "building": not (mark and mark.complete_as_of_ms),
        "incomplete": bool(mark and mark.incomplete),
        "has_strays": bool(mark and mark.has_strays),
    }
    if mark and mark.complete_as_of_ms:
        described["age_ms"] = max(0, now_ms - mark.complete_as_of_ms)
    return described


def of_partitions(partitions: dict[str, list[int]]) -> Response[str]:
    """`{"host:port": [0, 1, 2], ...}`."""
    return plain(partitions)
