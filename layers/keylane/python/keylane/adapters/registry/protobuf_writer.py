"""JSON as Protobuf messages, by a Schema Registry's schemas: what REST Proxy's `protobuf` needs.

Source: protobuf.dev, "ProtoJSON Format". The message's type is the first of its file, as in REST Proxy.
"""

from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf import json_format, message_factory
from google.protobuf.message import EncodeError

from keylane.adapters.registry.protobuf import compile_schema
from keylane.formats.avro_schema import NotOfSchema

FIRST_TYPE = b"\0"
"""The message indexes (0,), see `formats.confluent`."""
REASON_CHARACTERS = 300


def encoder(schema: str, references: Sequence[tuple[str, str]] = ()) -> Callable[[Any], bytes]:
    """Return a function from a JSON value to its bytes, message indexes first.

    `references`: import names and texts. Raises ValueError for an invalid schema; the function NotOfSchema.
    """
    file, pool, _ = compile_schema(schema, references)
    if not file.message_type:
        raise ValueError("the schema has no message type")
    name = f"{file.package}.{file.message_type[0].name}".removeprefix(".")
    message_class = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))

    def encode(value: Any) -> bytes:
        if not isinstance(value, dict):
            raise NotOfSchema("is not an object")
        try:
            message = json_format.ParseDict(value, message_class(), descriptor_pool=pool)
            data: bytes = message.SerializeToString()
            return FIRST_TYPE + data
        except (
            *(json_format.Error, EncodeError, RecursionError),
            *(TypeError, ValueError, AttributeError, KeyError),
        ) as error:
            # Its parser does not check the types of all that it reads.
            reason = str(error) or "the value is nested too deeply"
            raise NotOfSchema(f"is not a message of type {name}: {reason[:REASON_CHARACTERS]}") from None

    return encode
