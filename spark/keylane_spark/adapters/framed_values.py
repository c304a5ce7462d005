"""Decodes values in a Schema Registry's wire format to JSON, inside Spark's Python workers.

Values are decoded as reads decode them, each by its schema's decoder, which a worker process makes once.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keylane.adapters.registry.client import PROTOBUF, RegistryClient
from keylane.adapters.registry.decoders import RegistryDecoders
from keylane.adapters.registry.login import RegistrySettings
from keylane.formats.confluent import PREFIX_BYTES
from keylane.ports import Clock, Deadline, Decoder
from keylane_spark.adapters.event_schemas import TIMEOUT_MS, UNKNOWN_S, rows_by_schema

UNDECODABLE = "undecodable"
SCHEMA = f"partition int, offset bigint, timestamp timestamp, key binary, value binary, {UNDECODABLE} boolean"
"""The rows that `DecodeValues` makes, in Spark's words."""


@dataclass(frozen=True, slots=True)
class DecodeValues:
    """A function for `mapInArrow`: rows of the Kafka source -> the same rows with JSON as their values.

    `undecodable`: a value that no reader can decode; it is null then. `are_events`: they are change events,
    which are not supported in Protobuf. Raises RegistryUnavailable.
    """

    registry: RegistrySettings
    are_events: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode all batches of one task."""
        values = _values(self.registry)
        for batch in batches:
            framed = batch.column("value")
            decoded = pa.array(values.decode(framed, are_events=self.are_events), pa.binary())
            undecodable = pc.and_(decoded.is_null(), framed.is_valid())
            columns = [batch.column(name) for name in ("partition", "offset", "timestamp", "key")]
            names = ["partition", "offset", "timestamp", "key", "value", UNDECODABLE]
            yield pa.RecordBatch.from_arrays([*columns, decoded, undecodable], names)


@functools.cache
def _values(registry: RegistrySettings) -> FramedValues:
    """One for each worker process, for it keeps the schemas."""
    return FramedValues(RegistryDecoders(RegistryClient(registry)), Clock())


class FramedValues:
    """Values of one registry's schemas."""

    def __init__(self, decoders: RegistryDecoders, clock: Clock) -> None:
        self._decoders = decoders
        self._clock = clock
        self._unknown_until: dict[int, float] = {}

    def decode(self, values: pa.BinaryArray, *, are_events: bool = False) -> list[bytes | None]:
        """Return each value's JSON; None for null, and for what can't be decoded."""
        found: list[bytes | None] = [None] * len(values)
        sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
        is_framed = pc.fill_null(pc.equal(pc.binary_slice(values, 0, 1), b"\0"), fill_value=False)
        framed = np.flatnonzero(is_framed.to_numpy(zero_copy_only=False) & (sizes >= PREFIX_BYTES))
        for schema_id, rows in rows_by_schema(values, framed):
            decoder = self._decoder(schema_id)
            if decoder is None or (are_events and decoder.schema_type == PROTOBUF):
                continue
            for row, value in zip(rows.tolist(), values.take(pa.array(rows)).to_pylist(), strict=True):
                found[row] = _decoded(decoder, value[PREFIX_BYTES:])
        return found

    def _decoder(self, schema_id: int) -> Decoder | None:
        """The schema's decoder; None where the registry has none that can be used, for a while."""
        now_s = self._clock.monotonic_s()
        if self._unknown_until.get(schema_id, now_s) > now_s:
            return None
        try:
            return self._decoders.decoder(schema_id, Deadline.after_ms(TIMEOUT_MS, self._clock))
        except ValueError:
            self._unknown_until[schema_id] = now_s + UNKNOWN_S
            return None


def _decoded(decoder: Decoder, payload: bytes) -> bytes | None:
    try:
        return decoder.decode(payload).encode()
    except ValueError:
        return None
