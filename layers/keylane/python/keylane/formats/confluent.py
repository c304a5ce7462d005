"""Confluent's wire format: values that name their schema in a Schema Registry.

    byte     0         0, the magic byte
    u32      1..4      the schema's id, big-endian
             5..       the value: Avro's binary encoding, or JSON text; for Protobuf the message indexes
                       (their count, then each, as zigzag varints; a single 0 for (0,)), then the message

Source: docs.confluent.io, "Wire format". Schema ids in headers are not supported.
"""

import struct
from typing import NamedTuple

from keylane.formats.avro_primitives import Input

PREFIX_BYTES = 5
_MAGIC = 0
_INDEXES_LIMIT = 100


class Framed(NamedTuple):
    """A value and the id of its schema."""

    schema_id: int
    payload: bytes


def split(value: bytes) -> Framed:
    """The schema id and the payload of a value. Raises ValueError for one that names no schema."""
    if len(value) < PREFIX_BYTES or value[0] != _MAGIC:
        raise ValueError("the value does not begin with the byte 0 and a schema id")
    return Framed(struct.unpack_from(">I", value, 1)[0], value[PREFIX_BYTES:])


def join(schema_id: int, payload: bytes) -> bytes:
    """The opposite of `split`."""
    return struct.pack(">BI", _MAGIC, schema_id) + payload


def message_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """The path of a Protobuf message's type in its file, from the outermost type on, and the message's bytes.

    Raises ValueError.
    """
    source = Input(payload)
    count = source.long()
    if not 0 <= count <= _INDEXES_LIMIT:
        raise ValueError(f"the message index has {count} steps, which is not between 0 and {_INDEXES_LIMIT}")
    indexes = tuple(source.long() for _ in range(count)) or (0,)
    return indexes, payload[source.at :]
