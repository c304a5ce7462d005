"""Keylane's client: Kafka topics, queried over HTTPS. `Client` blocks, `AsyncClient` does not."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keylane_client.answers import (
        Absent,
        FoundPage,
        HistoryEntry,
        Joined,
        KafkaTopic,
        Lane,
        LogRecord,
        Position,
        Record,
        RecordHeader,
        TopicLayout,
        TopicVector,
        Window,
        WriteFailed,
        Written,
    )
    from keylane_client.auth import ApiKey, Bearer, SigV4
    from keylane_client.client import (
        AsyncBatching,
        AsyncClient,
        AsyncSession,
        AsyncView,
        Batching,
        Client,
        Session,
        View,
    )
    from keylane_client.conditions import FieldCondition, all_of, between, starting_with
    from keylane_client.context import NO_RETRIES, ClientOptions, RetryPolicy
    from keylane_client.errors import (
        AccessDenied,
        HistoryTooShort,
        InvalidAnswer,
        InvalidArgument,
        KeyAbsent,
        KeylaneError,
        NoCredentials,
        NotFound,
        NotKept,
        PositionNotReached,
        PreconditionFailed,
        ProblemError,
        RateLimited,
        RequestRefused,
        ServiceFailed,
        SnapshotOutdated,
        SyncFailed,
        Unavailable,
        UnknownTopic,
        UnknownView,
        Unreachable,
        ValueMismatch,
        ValueNotReadable,
        ViewNotOpened,
    )
    from keylane_client.json_text import parse_exactly, parse_json
    from keylane_client.snapshots import SnapshotPart
    from keylane_client.synced_topics import AsyncSyncedTopic, SyncedTopic
    from keylane_client.topics import AsyncFind, AsyncSnapshot, AsyncTopic, Find, Snapshot, Topic
    from keylane_client.wire import Exchange, Hook
    from keylane_client.writes import NewRecord

__version__ = "0.1.0"

__all__ = [
    "NO_RETRIES",
    "Absent",
    "AccessDenied",
    "ApiKey",
    "AsyncBatching",
    "AsyncClient",
    "AsyncFind",
    "AsyncSession",
    "AsyncSnapshot",
    "AsyncSyncedTopic",
    "AsyncTopic",
    "AsyncView",
    "Batching",
    "Bearer",
    "Client",
    "ClientOptions",
    "Exchange",
    "FieldCondition",
    "Find",
    "FoundPage",
    "HistoryEntry",
    "HistoryTooShort",
    "Hook",
    "InvalidAnswer",
    "InvalidArgument",
    "Joined",
    "KafkaTopic",
    "KeyAbsent",
    "KeylaneError",
    "Lane",
    "LogRecord",
    "NewRecord",
    "NoCredentials",
    "NotFound",
    "NotKept",
    "Position",
    "PositionNotReached",
    "PreconditionFailed",
    "ProblemError",
    "RateLimited",
    "Record",
    "RecordHeader",
    "RequestRefused",
    "RetryPolicy",
    "ServiceFailed",
    "Session",
    "SigV4",
    "Snapshot",
    "SnapshotOutdated",
    "SnapshotPart",
    "SyncFailed",
    "SyncedTopic",
    "Topic",
    "TopicLayout",
    "TopicVector",
    "Unavailable",
    "UnknownTopic",
    "UnknownView",
    "Unreachable",
    "ValueMismatch",
    "ValueNotReadable",
    "View",
    "ViewNotOpened",
    "Window",
    "WriteFailed",
    "Written",
    "all_of",
    "between",
    "parse_exactly",
    "parse_json",
    "starting_with",
]
_MODULES = (
    *("answers", "errors", "conditions", "json_text", "wire", "context", "snapshots", "writes"),
    *("auth", "synced_topics", "topics", "client"),
)
"""Where the names are. The last four import httpx, which takes longer than all the rest."""


def __getattr__(name: str) -> Any:
    """Import what is used, once it is: `keylane --help` needs none of it."""
    for module in _MODULES if name in __all__ else ():
        found = vars(import_module(f"{__name__}.{module}"))
        if name in found:
            globals()[name] = found[name]
            return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
