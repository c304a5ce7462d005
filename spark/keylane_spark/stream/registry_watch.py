"""Notices when a Schema Registry answers again for which partitions are held back."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

import pyarrow as pa

from keylane.errors import RegistryUnavailable, TopicChanged
from keylane.formats.confluent import join
from keylane.ports import Clock
from keylane_spark.rows.change_events import Judge
from keylane_spark.schemas.event_schemas import unread_schema

_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 15.0


class RegistryWatch:
    """Asks for the schemas that could not be read, with pauses that grow."""

    def __init__(self, judge_framed: Judge, clock: Clock) -> None:
        self._judge_framed = judge_framed
        self._clock = clock
        self._pause_s = _FIRST_PAUSE_S
        self._next_s = 0.0

    def check(self, reasons: Collection[str]) -> None:
        """Raise TopicChanged, after which all lanes are opened, when a schema can be read again.

        `reasons`: why partitions are held back; those that are no schema's count for nothing.
        """
        unread = {found for why in reasons if (found := unread_schema(why)) is not None}
        if not unread or self._clock.monotonic_s() < self._next_s:
            return
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, _LAST_PAUSE_S)
        with contextlib.suppress(RegistryUnavailable):
            for schema_id in sorted(unread):
                self._judge_framed(pa.array([join(schema_id, b"")], pa.binary()))
            raise TopicChanged("the Schema Registry answers again: partitions are held back no more")
        # From the end of the wait on: the thread has other queries to look at.
        self._next_s = self._clock.monotonic_s() + pause_s
