"""Whether a topic is a database's table: its values change events, its keys JSON objects, or of a schema."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from keylane.adapters.registry.circuit import Circuit
from keylane.adapters.registry.client import RegistryClient
from keylane.adapters.registry.decoders import RegistryDecoders
from keylane.config.functions import renewable_registry
from keylane.errors import BadConfig, BadRequest, Unavailable
from keylane.formats import confluent
from keylane.formats.change_events import parse_event
from keylane.formats.connect_keys import ConnectKeys, keys_with_schema
from keylane.formats.json_text import members, parse
from keylane.formats.schema_times import time_kinds
from keylane.model.records import KeyFields, Options
from keylane.model.schema_rules import default_subject
from keylane.ports import Clock, Deadline
from keylane.query.registry_keys import encode_by_schemas
from keylane.state.json_keys import encode_json, json_keys

_REGISTRY_MS = 5_000
_DECODED = 100
"""Values of a registry that are looked at."""

_FIELD_OF = {str: "text", int: "number", float: "number", bool: "boolean"}
"""The type of a field whose values have this type in JSON."""
_LEVELS = 10
"""Of objects in a value whose fields are looked at."""
_KINDS = {int: "integer", str: "string", bool: "boolean"}
UNITS = {
    "number": "years",
    "time": "milliseconds",
    "time_s": "seconds",
    "time_us": "microseconds",
    "time_ns": "nanoseconds",
    "time_days": "days",
}
"""What integers of a type of fields count."""


def has_change_events(values: Collection[bytes]) -> bool:
    """Return whether all values are change events in JSON, and there are some."""
    is_framed = any(value[:1] == b"\0" for value in values)
    return bool(values) and not is_framed and not any(find_event_faults(values))


def find_event_faults(values: Collection[bytes]) -> Iterator[str]:
    """Yield why values are not change events in JSON; what a registry's schema has to say is left out."""
    for value in values:
        if value[:1] == b"\0":
            continue
        try:
            parse_event(value.decode())
        except ValueError as error:
            yield "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def explain_events(values: Collection[bytes]) -> str:
    """Return why not all values are a table's; "" where they are, and where no value is."""
    judged = [value for value in values if value[:1] != b"\0"]
    faults = list(find_event_faults(judged))
    has_events = len(faults) < len(judged) or any(b'"updateDescription"' in value for value in judged)
    if not faults or not has_events:
        return ""
    return f"{len(faults)} of {len(judged)} values are not change events: {faults[0]}"


_FROM_S, _TO_S = 946_684_800, 4_102_444_800
"""The years 2000 to 2099."""
_TIMES = {
    "number": (1900, 2100),
    "time_days": (_FROM_S // 86_400, _TO_S // 86_400),
    "time_s": (_FROM_S, _TO_S),
    "time": (_FROM_S * 1000, _TO_S * 1000),
    "time_us": (_FROM_S * 10**6, _TO_S * 10**6),
    "time_ns": (_FROM_S * 10**9, _TO_S * 10**9),
}
"""By types of fields, the integers that are times of these years; of `number` it is the years themselves."""


class GuessedTimes(NamedTuple):
    """Fields of objects, by their names as in a.b, and types that fit them.

    `guessed`: of those whose values may all be times. `typed`: of those whose unit the schema beside the
    values says; the job reads it, so `time` fits, too.
    """

    guessed: Mapping[str, str]
    typed: Mapping[str, str]


def guess_times(values: Collection[bytes]) -> GuessedTimes:
    """Look at values that are JSON, or change events in JSON."""
    numbers = defaultdict[str, set[Any]](set)
    typed: dict[str, str] = {}
    for value in values:
        row, schema = _row_of(value)
        found = dict(_scalars(row))
        for name, each in found.items():
            numbers[name].add(each)
        if schema:
            kinds = time_kinds(schema, [tuple(name.split(".")) for name in found], of_event=True)
            typed |= {".".join(path): kind for path, kind in kinds.items()}
    units = {name: _unit_of(each) for name, each in numbers.items() if name not in typed}
    return GuessedTimes({name: unit for name, unit in units.items() if unit}, typed)


def guess_fields(values: Collection[bytes]) -> list[tuple[str, str]]:
    """Return fields of most values by which records can be found, with their types; the likeliest first.

    A field with a value of its own in each record is rather a key, and one with the same in all finds all.
    """
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for value in values:
        for name, each in _scalars(_row_of(value)[0]):
            found[name].append(each)
    kinds = {name: {_FIELD_OF.get(type(each), "") for each in own} for name, own in found.items()}
    usable = [
        (name, next(iter(kinds[name])))
        for name, own in found.items()
        if len(kinds[name]) == 1 and "" not in kinds[name] and len(own) * 2 >= len(values)
    ]

    def rank(field: tuple[str, str]) -> tuple[bool, float]:
        own = found[field[0]]
        different = len(set(own))
        return different in {1, len(own)}, different / len(own)

    return sorted(usable, key=rank)


def _row_of(value: bytes) -> tuple[Any, str | None]:
    try:
        event = parse_event(value.decode())
        row, schema = event.row, event.schema
    except ValueError:
        row, schema = value.decode(errors="replace"), None
    try:
        return json.loads(row or "null"), schema
    except (ValueError, RecursionError):
        return None, None


def _scalars(found: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what an object has besides null, arrays and objects, and what objects in it have."""
    for name, each in found.items() if isinstance(found, dict) and above.count(".") < _LEVELS else ():
        if isinstance(each, dict):
            yield from _scalars(each, f"{above}{name}.")
        elif each is not None and not isinstance(each, list):
            yield f"{above}{name}", each


def _unit_of(numbers: Collection[Any]) -> str:
    """Return the type of field for which these are times, "" where there is none."""
    if not all(type(each) is int for each in numbers):
        return ""
    kinds = (kind for kind, (low, high) in _TIMES.items() if all(low <= each < high for each in numbers))
    return next(kinds, "")


def decode_registered(values: Sequence[bytes], environment: Mapping[str, str]) -> tuple[list[bytes], str]:
    """Return the JSON of a registry's first values; none if one is faulty or it can't be asked, and why."""
    try:
        client = RegistryClient(renewable_registry(environment), Circuit(_REGISTRY_MS))
        decoders = RegistryDecoders(client)
        deadline = Deadline.after_ms(_REGISTRY_MS, Clock())
        framed = map(confluent.split, values[:_DECODED])
        return [
            decoders.decoder(schema_id, deadline).decode(payload).encode() for schema_id, payload in framed
        ], ""
    except (BadConfig, Unavailable, ValueError) as error:
        return [], str(error)


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


def explain_keys(keys: Collection[bytes]) -> str:
    """Return why keys that are JSON objects can't be asked for by their values; "" for other keys."""
    try:
        found = [members(key.decode()) for key in keys]
    except ValueError:
        return ""
    schemas = {each["schema"] for each in found if each.keys() == {"schema", "payload"}}
    if schemas:
        return _explain_schemas(schemas, keys)
    for name, text in ((name, text) for each in found for name, text in each.items()):
        if type(json.loads(text, parse_int=len)) not in _KINDS:  # a key may have any number of digits
            return f"the field {name!r} is not a string, an integer or a boolean{_hint_at_decimals(text)}"
    if len({tuple(each) for each in found}) > 1:
        return "they have several fields, or several orders of them"
    fields = guess_key_fields(list(keys)[:1])
    faults = (
        _find_faults(ConnectKeys(fields), keys) if fields else iter(("they are not Connect's converter's",))
    )
    return next(faults, "") if found else ""


def _explain_schemas(schemas: Collection[str], keys: Collection[bytes]) -> str:
    if len(schemas) > 1:
        return "they have several schemas"
    [schema] = schemas
    try:
        return next(_find_faults(keys_with_schema(schema), keys), "")
    except ValueError as error:
        return f"the schema in them {error}{_hint_at_decimals(schema)}"


def _hint_at_decimals(text: str) -> str:
    is_decimal = '"scale"' in text or "VariableScaleDecimal" in text
    return ": decimal.handling.mode=string makes a text of it" if is_decimal else ""


def explain_registered(topic: str, keys: Sequence[bytes], environment: Mapping[str, str]) -> str:
    """Return why keys of a registry can't be asked for by their values; "" also where it can't be asked."""
    subject = default_subject(topic, "key")
    try:
        client = RegistryClient(renewable_registry(environment), Circuit(_REGISTRY_MS))
        deadline = Deadline.after_ms(_REGISTRY_MS, Clock())
        decoders = RegistryDecoders(client)
        encoders = decoders.key_encoders(subject, deadline)
        for key in keys[:_DECODED]:
            schema_id, payload = confluent.split(key)
            shown = decoders.decoder(schema_id, deadline).decode(payload).encode()
            if key not in encode_by_schemas(
                subject, encoders, json.loads(shown) if shown[:1] == b'"' else shown
            ):
                return f"no schema of subject {subject!r} makes the bytes of {shown.decode()[:60]}"
    except (BadConfig, Unavailable):
        return ""
    except (BadRequest, ValueError) as error:
        return str(error)
    return ""


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


def json_object(value: bytes | None) -> dict[str, Any] | None:
    """Return a value that is a JSON object; None for any other."""
    try:
        found = parse(value or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def paths_of(value: dict[str, Any], above: str = "") -> Iterator[str]:
    """Yield the names of an object's fields, of objects in it as a.b."""
    for name, inner in value.items():
        yield f"{above}{name}"
        if isinstance(inner, dict):
            yield from paths_of(inner, f"{above}{name}.")
