"""Decodes values in a Schema Registry's wire format to JSON: for views, and for indexes of fields.

Values are decoded as reads decode them, each by its schema's decoder, which a process makes once.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keylane.adapters.registry.client import PROTOBUF
from keylane.adapters.registry.decoders import RegistryDecoders
from keylane.adapters.registry.login import RegistrySettings
from keylane.formats.confluent import PREFIX_BYTES
from keylane.ports import Clock, Decoder
from keylane_spark.rows.change_events import Judge
from keylane_spark.rows.fields import Decode, Decoded, decode_none
from keylane_spark.schemas.event_schemas import (
    KnownSchemas,
    framed_judge,
    judge_none,
    registry_client,
    rows_by_schema,
)


@functools.cache
def framed_decode(settings: RegistrySettings | None) -> Decode:
    """Return what decodes values in the wire format: one for each process, for it keeps the schemas.

    Without a registry none can be decoded.
    """
    if settings is None:
        return decode_none
    return FramedValues(RegistryDecoders(registry_client(settings)), Clock()).decode


class FramedReaders(NamedTuple):
    """How values in the wire format are read: as change events (see `apply_events`), and as JSON."""

    judge: Judge = judge_none
    decode: Decode = decode_none

    @classmethod
    def of(cls, settings: RegistrySettings | None) -> FramedReaders:
        """By this registry's schemas; without one no value can be read."""
        return cls(framed_judge(settings), framed_decode(settings))


NO_REGISTRY = FramedReaders()


class FramedValues:
    """Values of one registry's schemas."""

    def __init__(self, decoders: RegistryDecoders, clock: Clock) -> None:
        self._decoders = KnownSchemas(decoders.decoder, clock)

    def decode(self, values: pa.BinaryArray, *, are_events: bool = False) -> Decoded:
        """See `Decode`. Errors as of `KnownSchemas.get`."""
        found = Decoded.of_none(len(values))
        sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
        is_framed = pc.fill_null(pc.equal(pc.binary_slice(values, 0, 1), b"\0"), fill_value=False)
        framed = np.flatnonzero(is_framed.to_numpy(zero_copy_only=False) & (sizes >= PREFIX_BYTES))
        for schema_id, rows in rows_by_schema(values, framed):
            decoder = self._decoders.get(schema_id)
            if decoder is None or (are_events and decoder.schema_type == PROTOBUF):
                continue
            for row, value in zip(rows.tolist(), values.take(pa.array(rows)).to_pylist(), strict=True):
                found.documents[row] = _decoded(decoder, value[PREFIX_BYTES:])
                found.schemas[row] = decoder.schema
        return found


def _decoded(decoder: Decoder, payload: bytes) -> bytes | None:
    try:
        return decoder.decode(payload).encode()
    except ValueError:
        return None
