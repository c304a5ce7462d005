"""JSON that a JSON Schema of a registry accepts, as its text: what REST Proxy's `jsonschema` needs."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from keylane.adapters.registry.json_schema_bounded import bounded_validator
from keylane.formats.avro_schema import TOO_DEEP, NotOfSchema

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encoder(schema: str, references: Sequence[tuple[str, str]] = ()) -> Callable[[Any], bytes]:
    """Return a function from a JSON value to its text in UTF-8; `references`: names and texts.

    Raises ValueError for an invalid schema; the function NotOfSchema, and RegistryUnavailable where the check
    took too long.
    """
    find_fault = bounded_validator(schema, references)

    def encode(value: Any) -> bytes:
        try:
            data = _compact(value).encode()
        except RecursionError:
            raise NotOfSchema(TOO_DEEP) from None
        except UnicodeEncodeError:
            raise NotOfSchema("has characters that are not valid Unicode") from None
        fault = find_fault(data)
        if fault is not None:
            error = NotOfSchema(f"does not match its schema: {fault.reason}")
            error.path = fault.path.removeprefix("/").replace("/", ".")
            raise error
        return data

    return encode
