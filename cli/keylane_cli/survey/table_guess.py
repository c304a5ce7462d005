"""Whether a topic is a database's table: its values change events, its keys JSON objects, or of a schema."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence

from keylane.adapters.registry.circuit import Circuit
from keylane.adapters.registry.client import RegistryClient
from keylane.adapters.registry.decoders import RegistryDecoders
from keylane.config.functions import renewable_registry
from keylane.errors import BadConfig, BadRequest, Unavailable
from keylane.formats import confluent
from keylane.formats.change_events import parse_event
from keylane.formats.connect_keys import ConnectKeys, keys_with_schema
from keylane.formats.json_text import members
from keylane.model.records import KeyFields, Options
from keylane.ports import Clock, Deadline
from keylane.query.typed_keys import encode_json, json_keys

_REGISTRY_MS = 5_000
_DECODED = 100
"""Values of a registry that are looked at."""

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


def decode_registered(values: Sequence[bytes], environment: Mapping[str, str]) -> list[bytes]:
    """Return the JSON of the first values of a registry; none if it can't be asked or one is faulty."""
    try:
        client = RegistryClient(renewable_registry(environment), Circuit(_REGISTRY_MS))
        decoders = RegistryDecoders(client)
        deadline = Deadline.after_ms(_REGISTRY_MS, Clock())
        framed = map(confluent.split, values[:_DECODED])
        return [
            decoders.decoder(schema_id, deadline).decode(payload).encode() for schema_id, payload in framed
        ]
    except (BadConfig, Unavailable, ValueError):
        return []


def has_registry_keys(keys: Collection[bytes]) -> bool:
    """Return whether all keys begin with the id of a schema, and there are some.

    Java's longs begin with zeros, too: as ids these are 0, which no schema has.
    """
    return bool(keys) and not any(find_frame_faults(keys))


def find_frame_faults(keys: Collection[bytes]) -> Iterator[str]:
    """Yield why keys are not in a registry's wire format."""
    for key in keys:
        if len(key) <= confluent.PREFIX_BYTES or key[0] != 0 or not any(key[1 : confluent.PREFIX_BYTES]):
            yield "it does not begin with the byte 0 and the id of a schema"


def guess_key_schema(keys: Collection[bytes]) -> str:
    """Return the schema that all keys have in them; "" where they have none, or several."""
    try:
        found = {members(key.decode())["schema"] for key in keys}
        if len(found) != 1:
            return ""
        [schema] = found
        form = keys_with_schema(schema)
    except (ValueError, KeyError):
        return ""
    return "" if any(_find_faults(form, keys)) else schema


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
    return fields if fields and not any(_find_faults(ConnectKeys(fields), keys)) else ()


def find_key_faults(options: Options, keys: Collection[bytes]) -> Iterator[str]:
    """Yield why no client would find these keys by their fields."""
    if options.key_format == "registry":
        return find_frame_faults(keys)
    form = json_keys(options)
    return _find_faults(form, keys) if form else iter(())


def _find_faults(form: ConnectKeys, keys: Collection[bytes]) -> Iterator[str]:
    for key in keys:
        shown = form.show(key)
        try:
            if shown is None and form.head:
                yield "they have another schema, or none"
            elif encode_json(form, key if shown is None else shown.encode()) != key:
                yield "their JSON is not that of Connect's converter"
        except BadRequest as error:
            yield str(error)
