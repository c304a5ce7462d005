"""Whether a topic is a database's table: its values change events, its keys JSON objects."""

import json
from collections.abc import Collection, Iterator

from keylane.errors import BadRequest
from keylane.formats.change_events import parse_event
from keylane.model.records import KeyFields
from keylane.query.typed_keys import encode_key

_KINDS = {int: "integer", str: "string", bool: "boolean"}


def has_change_events(values: Collection[bytes]) -> bool:
    """Return whether all values are change events in JSON, and there are some."""
    return bool(values) and not any(find_event_faults(values))


def find_event_faults(values: Collection[bytes]) -> Iterator[str]:
    """Yield why values are not change events in JSON; what a registry's schema has to say is left out."""
    for value in values:
        if value[:1] == b"\0":
            continue
        try:
            parse_event(value.decode())
        except ValueError as error:
            yield "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def guess_key_fields(keys: Collection[bytes]) -> KeyFields:
    """Return the fields of keys that are JSON objects alike; () where they are anything else."""
    try:
        found = {
            tuple((name, _KINDS[type(value)]) for name, value in json.loads(key).items()) for key in keys
        }
    except (ValueError, RecursionError, AttributeError, KeyError):
        return ()
    if len(found) != 1:
        return ()
    [fields] = found
    return fields if fields and not any(find_key_faults(fields, keys)) else ()


def find_key_faults(fields: KeyFields, keys: Collection[bytes]) -> Iterator[str]:
    """Yield why no client would find these keys by their fields."""
    for key in keys:
        try:
            if encode_key(fields, key) != key:
                yield "their JSON is not that of Connect's converter"
        except BadRequest as error:
            yield str(error)
