"""What topics and views a stack has. It follows from a schedule's seed, so a replay has the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.servers.kafka_cluster import UNCLEAN
from tests.torture.found import FIELDS, INDEXES
from tests.torture.schedule import Shape

from keylane.model.records import WHOLE_KEY, Options

PER_CONFIGURATION = 25
"""So many seeds, one after the other, have one configuration."""
PLAIN = "plain"
BY_PREFIX = "prefix:_"
"""Keys of a schedule share what stands before it; other keys have none of it."""
COUNTS, WINDOWS, SESSIONS = "counts", "windows", "sessions"
DOCUMENTS = "documents"
"""The topic whose values are JSON objects, or poison for its views."""
DATED, PICKY, LATE = "dated", "picky", "late"
WINDOW_MS, GAP_MS = 1_000, 50
HOUR_MS = 3_600_000
FOUND: Any = {"fields": FIELDS, "indexes": INDEXES}

SIDE, COMPACTED, RETAINED = "side", "compacted", "retained"
TABLE, LARGE, ROWS = "table", "large", "rows"
"""A topic of a table's rows and one of large values, which nobody listens to; and a view over the rows."""
SIDE_PARTITIONS = 2
CLEANER_RESTS = {
    "min.compaction.lag.ms": str(24 * HOUR_MS),
    "max.compaction.lag.ms": str(2**63 - 1),
    "delete.retention.ms": str(24 * HOUR_MS),
}
"""Nothing is compacted, and tombstones last."""
SIDE_TOPICS: dict[str, dict[str, str]] = {
    SIDE: UNCLEAN,
    COMPACTED: {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        **CLEANER_RESTS,
    },
    RETAINED: {"retention.ms": "-1"},
    TABLE: {},
    LARGE: {},
}
"""Topics that only events write, which change them as a whole, with their settings in Kafka.

What compaction removes of a topic, and when, follows from settings that the events change.
"""
_SIDE_TOML = (
    f"[topics.{SIDE}]\n[topics.{COMPACTED}]\n[topics.{RETAINED}]\nguarded = true\n"
    f'[topics.{TABLE}]\nenvelope = "debezium"\n'
    f'[topics.{LARGE}]\nindex_parts = 8\ncompression = "zstd"\n[topics.{LARGE}.fields]\ns = "text"\n'
)

_VIEWS = {
    COUNTS: "",
    WINDOWS: f'window = "{WINDOW_MS}ms"\nlateness = "1h"\ncompression = "zstd"\n',
    SESSIONS: f'session = "{GAP_MS}ms"\nlateness = "1h"\n',
}
"""Views of the plain topic, each with a count. No event comes later than an hour, so every one is counted."""
_DOCUMENT_VIEWS = {
    DATED: f'time = "at"\nwindow = "{WINDOW_MS}ms"\nlateness = "1h"\n',
    PICKY: "where = \"cast(variant_get(json, '$.n', 'string') as int) >= 0\"\n",
    LATE: f'time = "at"\nwindow = "{WINDOW_MS}ms"\ncompression = "zstd"\n',
}
"""Views of the topic of documents, each with a count and the newest of its large values."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A stack's topics, and what else its `keylane.toml` says."""

    name: str
    shapes: tuple[Shape, ...]
    views: tuple[str, ...] = ()
    document_views: tuple[str, ...] = ()
    wait_replicas: int = 0
    brokers: int = 1
    reader: str = "direct"

    def toml(self) -> str:
        """Everything but the tables `[job]` and `[spark]`, whose end is the beginning of this."""
        topics = "".join(f"[topics.{shape.name}]\n{settings_of(shape)}" for shape in self.shapes)
        views = "".join(
            f'[views.{view}]\ntopic = "{PLAIN}"\n{_VIEWS[view]}[views.{view}.columns]\nn = "count()"\n'
            for view in self.views
        )
        documents = "".join(
            f'[views.{view}]\ntopic = "{DOCUMENTS}"\n{_DOCUMENT_VIEWS[view]}'
            f'[views.{view}.columns]\nn = "count()"\np = "latest(p)"\n'
            for view in self.document_views
        )
        return topics + views + documents + _SIDE_TOML


def settings_of(shape: Shape) -> str:
    """The lines of a topic's table in `keylane.toml`."""
    options = shape.options
    settings = {
        "stripes": shape.stripes,
        "partition_by": shape.partition_by != WHOLE_KEY and f'"{shape.partition_by}"',
        "history_count": options.history_count,
        "history_age": options.history_age_ms and f'"{options.history_age_ms}ms"',
        "ttl": options.ttl_ms and f'"{options.ttl_ms}ms"',
        "index": options.index and "true",
        "index_parts": options.index > 1 and options.index,
        "headers": options.headers and "true",
        "guarded": options.guarded and "true",
        "insert_once": options.insert_once and "true",
        "compression": options.compression != "none" and f'"{options.compression}"',
        "tombstone_marker": f'"{options.marker_ms}ms"' if options.marker_ms != Options().marker_ms else None,
    }
    return "".join(f"{name} = {value}\n" for name, value in settings.items() if value) + _found_by(shape)


def _found_by(shape: Shape) -> str:
    fields = "".join(f'{name} = "{kind}"\n' for name, kind in shape.options.fields)
    indexes = "".join(f"{name} = {list(parts)}\n" for name, parts in shape.options.indexes)
    tables = {"fields": fields, "indexes": indexes}
    return "".join(f"[topics.{shape.name}.{name}]\n{text}" for name, text in tables.items() if text)


STANDARD = Configuration(
    "standard",
    (
        Shape(PLAIN, 6),
        Shape(
            "rich",
            4,
            stripes=2,
            options=Options(history_count=5, index=3, headers=True, **FOUND),
            partition_by=BY_PREFIX,
        ),
        Shape("mixed", 6, mixed=True),
    ),
)
CONFIGURATIONS = (
    STANDARD,
    # Strays in lanes that keep everything, and histories by age; values are compressed.
    Configuration(
        "kept",
        (
            Shape(
                "mixed",
                6,
                mixed=True,
                stripes=2,
                options=Options(history_count=5, index=2, headers=True, compression="zstd", **FOUND),
                partition_by=BY_PREFIX,
            ),
            Shape(
                "aged", 4, options=Options(history_age_ms=HOUR_MS, index=1, compression="zstd", fields=FIELDS)
            ),
        ),
    ),
    # Records that expire, and keys that keep their first value; replicas must have each batch. Spark's JVM
    # reads them.
    Configuration(
        "timed",
        (
            Shape("timed", 4, stripes=2, options=Options(ttl_ms=8_000, index=16, **FOUND)),
            Shape("once", 6, options=Options(insert_once=True, index=1, fields=FIELDS)),
            Shape("mixed", 6, mixed=True, options=Options(guarded=True, index=1, **FOUND)),
        ),
        wait_replicas=1,
        reader="spark",
    ),
    Configuration("views", (Shape(PLAIN, 6), Shape("mixed", 6, mixed=True)), (COUNTS, WINDOWS, SESSIONS)),
    # Tombstones leave no marker, or one that is soon gone.
    Configuration(
        "forgetful",
        (
            Shape(PLAIN, 6, options=Options(marker_ms=0)),
            Shape("mixed", 6, mixed=True, options=Options(marker_ms=500, history_count=3)),
        ),
    ),
    # Views of values that they can't take, and of large ones.
    Configuration("documents", (Shape(PLAIN, 6), Shape(DOCUMENTS, 3)), document_views=(DATED, PICKY, LATE)),
    # Leaders change when a broker is killed, and one that was not in sync may be elected.
    Configuration("replicated", (Shape(PLAIN, 6), Shape("mixed", 6, mixed=True)), brokers=3),
)


def configuration_of(seed: int) -> Configuration:
    """The configuration of the schedule with this seed."""
    return CONFIGURATIONS[seed // PER_CONFIGURATION % len(CONFIGURATIONS)]


def configuration_named(name: str) -> Configuration:
    return next(configuration for configuration in CONFIGURATIONS if configuration.name == name)
