"""JSON that a JSON Schema of a registry accepts, as its text: what REST Proxy's `jsonschema` needs."""

import json
import re
from collections.abc import Sequence
from typing import Any

from keylane.adapters.registry.compiled import Encoder
from keylane.adapters.registry.json_schema_bounded import bounded_validator
from keylane.formats.avro_schema import TOO_DEEP, NotOfSchema
from keylane.formats.json_text import compact

_DRAFT = re.compile(r"https?://json-schema\.org/(draft-0[467]|draft/20(19-09|20-12))/schema#?")


def encoder(schema: str, references: Sequence[tuple[str, str]] = ()) -> Encoder:
    """Return what makes a JSON value its text in UTF-8. `references`: names and texts.

    Raises ValueError for an invalid schema; the encoder NotOfSchema, and RegistryUnavailable where the check
    took too long.
    """
    find_fault, size_bytes = bounded_validator(
        _in_dialect(schema), [(name, _in_dialect(text)) for name, text in references]
    )

    def encode(value: Any) -> bytes:
        try:
            data = compact(value).encode()
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

    return Encoder(encode, size_bytes)


def _in_dialect(text: str) -> str:
    """The schema as REST Proxy reads it: without a `$schema` that is a draft's, it is of draft-07."""
    schema = json.loads(text)
    if not isinstance(schema, dict):
        return text
    given = schema.get("$schema")
    if isinstance(given, str) and _DRAFT.fullmatch(given):
        return text
    return json.dumps(schema | {"$schema": "http://json-schema.org/draft-07/schema#"})
