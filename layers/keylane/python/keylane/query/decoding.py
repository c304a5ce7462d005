"""Decodes values as their topic's `value_format` says, and shows keys that are JSON.

    auto       the bytes decide: JSON, else text, else bytes
    json       JSON text
    text       UTF-8, whatever it looks like
    bytes      bytes, whatever they look like
    registry   Confluent's wire format with Avro, Protobuf or JSON Schema: the value becomes JSON

Of a topic with an envelope a value is a change event, JSON or `registry`, and decodes to its row: see
`formats.change_events`.

A client that asks for bytes gets the value as it is in Kafka, whatever the format.
"""

import logging
from collections.abc import Callable
from typing import Any

from keylane.errors import BadConfig, RegistryUnavailable, ValueNotDecodable
from keylane.formats.json_text import is_json
from keylane.model.records import Layout, Record, ValueForm
from keylane.ports import Decoder, Schemas, WaitBudget
from keylane.state.json_keys import json_keys

_log = logging.getLogger("keylane")

BYTES = ValueForm("base64")


class ValueDecoder:
    """Decodes the values of one request.

    `schemas` is called when the first value needs a schema; `registry_wait` bounds what the request waits for
    it. With `as_bytes` no value is decoded. With `events` a change event is decoded, and stays
    whole. With `raw_keys` keys are shown as they are in Kafka.
    """

    def __init__(
        self,
        schemas: Callable[[], Schemas],
        registry_wait: WaitBudget,
        *,
        as_bytes: bool = False,
        events: bool = False,
        raw_keys: bool = False,
    ) -> None:
        self._raw_keys = raw_keys
        self._schemas = schemas
        self._registry_wait = registry_wait
        self._as_bytes = as_bytes
        self._events = events
        self._logged = False
        self._found: dict[int, Decoder | Exception] = {}

    def keeps_values(self, layout: Layout) -> bool:
        """Return whether `decode` returns every record of the topic as it is."""
        options = layout.options
        return options.value_format == "auto" and options.envelope == "none" and not self._as_bytes

    def decode(self, layout: Layout, record: Record) -> Record:
        """Return the record with its value decoded and its `form` set.

        Raises ValueNotDecodable, RegistryUnavailable, BadConfig where no registry is set up.
        """
        options = layout.options
        value_format = options.value_format
        if self._as_bytes or value_format == "bytes":
            return record._replace(form=BYTES)
        if value_format == "auto" and options.envelope == "none":
            return record
        if record.left_in_kafka_bytes is not None:
            return record
        if value_format == "registry":
            decoded = self._decode_by_schema(record)
        else:
            decoded = _decode_text(record, value_format) if value_format in {"text", "json"} else record
        return decoded if self._events or options.envelope == "none" else _row_of(decoded)

    def decode_or_explain(self, layout: Layout, record: Record) -> Record:
        """As `decode`, but a value that can't be decoded stays as it is, and its form says why."""
        try:
            return self.decode(layout, record)
        except ValueNotDecodable as error:
            return record._replace(form=ValueForm("base64", error.schema_id, None, error.reason))
        except (RegistryUnavailable, BadConfig) as error:
            self._log_once(error)
            why = "no Schema Registry is configured" if isinstance(error, BadConfig) else str(error)
            schema_id = _wire_format().split(record.value).schema_id
            return record._replace(form=ValueForm("base64", schema_id, None, why))

    def incarnation(self, layout: Layout) -> int:
        """Return what, beside positions, names the records of a topic as they are shown."""
        return layout.incarnation

    def shown_since_ms(self, layout: Layout) -> float:
        """Return since when a topic's records are shown as they are now: an epoch is a time."""
        return layout.incarnation

    def shows_keys(self, layout: Layout) -> bool:
        """Return whether `show_key` may show a key of the topic."""
        return layout.options.has_typed_keys and not self._raw_keys

    def show_key(self, layout: Layout, key: bytes) -> str | None:
        """Return the JSON that a key is asked for by; None where it is shown as it is in Kafka."""
        if not self.shows_keys(layout):
            return None
        if layout.options.key_format != "registry":
            form = json_keys(layout.options)
            return form.show(key) if form else None
        try:
            schema_id, payload = _wire_format().split(key)
            return self._decoder(schema_id).decode(payload)
        except ValueError:
            return None
        except (RegistryUnavailable, BadConfig) as error:
            self._log_once(error)
            return None

    def _log_once(self, error: Exception) -> None:
        """Log a fault on the server's side, once a request: a row has no problem document that does it."""
        if not self._logged:
            _log.warning("values are shown as bytes: %s; cause: %r", error, error.__cause__)
            self._logged = True

    def _decode_by_schema(self, record: Record) -> Record:
        position = str(record.position)
        try:
            schema_id, payload = _wire_format().split(record.value)
        except ValueError as error:
            raise ValueNotDecodable(position, str(error)) from error
        try:
            decoder = self._decoder(schema_id)
            value = decoder.decode(payload).encode()
        except ValueError as error:
            raise ValueNotDecodable(position, str(error), schema_id) from error
        return record._replace(value=value, form=ValueForm("json", schema_id, decoder.schema_type))

    def _decoder(self, schema_id: int) -> Decoder:
        """Return a schema's decoder. Each schema is read once a request; a failure counts for all values."""
        found = self._found.get(schema_id)
        if found is None:
            try:
                with self._registry_wait.asking() as deadline:
                    found = self._schemas().decoder(schema_id, deadline)
            except (RegistryUnavailable, BadConfig, ValueError) as error:
                found = error
            self._found[schema_id] = found
        if isinstance(found, Exception):
            raise found
        return found


def _wire_format() -> Any:
    # Most functions never meet such a value, and every cold start is short.
    from keylane.formats import confluent  # noqa: PLC0415

    return confluent


def _decode_text(record: Record, value_format: str) -> Record:
    position = str(record.position)
    try:
        text = record.value.decode()
    except UnicodeDecodeError as error:
        raise ValueNotDecodable(position, "it is not UTF-8") from error
    if value_format == "json" and not is_json(text):
        raise ValueNotDecodable(position, "it is not valid JSON")
    return record._replace(form=ValueForm(value_format))


def _row_of(event: Record) -> Record:
    """Return the record with the row of its decoded change event as its value."""
    form = event.form or ValueForm("json")
    if form.schema_type == "PROTOBUF":
        reason = "change events in Protobuf are not supported"
        raise ValueNotDecodable(str(event.position), reason, form.schema_id)
    try:
        row = _change_events().parse_event(event.value.decode()).row
    except ValueError as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise ValueNotDecodable(str(event.position), reason, form.schema_id) from error
    if row is None:
        # The job deletes such a row: it could not read the event, for want of its schema at that time.
        raise ValueNotDecodable(str(event.position), "the event deletes the row", form.schema_id)
    return event._replace(value=row.encode(), form=form)


def _change_events() -> Any:
    from keylane.formats import change_events  # noqa: PLC0415 (as for the wire format)

    return change_events
