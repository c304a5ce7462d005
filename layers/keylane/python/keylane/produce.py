"""Writing a key: one record to Kafka, acknowledged, and the position that a read can wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.errors import TooLarge
from keylane.keys import check_key
from keylane.ports import Deadline

if TYPE_CHECKING:
    from keylane.model import Position
    from keylane.ports import Clock, Log


def put(
    log: Log, clock: Clock, topic: str, key: bytes, value: bytes, *, limit_bytes: int, timeout_ms: float
) -> Position:
    """Write `value` (`limit_bytes` at most; empty is a value too) under `key`; acknowledged when it returns.

    Raises NullKey, TooLarge, UnknownTopic, ProduceFailed, LogUnavailable.
    """
    check_key(key)
    if len(value) > limit_bytes:
        raise TooLarge("value", len(value), limit_bytes)
    return log.append(topic, key, value, Deadline.after_ms(timeout_ms, clock))


def delete(log: Log, clock: Clock, topic: str, key: bytes, *, timeout_ms: float) -> Position:
    """Write a tombstone for `key`, whether or not there is a record under it. Errors as `put`."""
    check_key(key)
    return log.append(topic, key, None, Deadline.after_ms(timeout_ms, clock))
