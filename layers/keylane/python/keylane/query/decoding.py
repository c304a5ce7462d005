"""Values as their topic's `value_format` says that they are: those of a Schema Registry become JSON.

    auto       what the bytes look like: JSON, else text, else bytes
    json       JSON text
    text       UTF-8, whatever it looks like
    bytes      bytes, whatever they look like
    registry   Confluent's wire format: Avro, Protobuf or JSON Schema

A client that asks for bytes gets them, whatever the format.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from keylane.errors import BadConfig, RegistryUnavailable, ValueNotDecodable
from keylane.formats.json_text import is_json
from keylane.model.records import Answer, ValueForm
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from keylane.model.records import HistoryEntry, Layout, Record
    from keylane.ports import Clock, Decoder, Schemas

_log = logging.getLogger("keylane")

BYTES = ValueForm("base64")


class Values:
    """The values of one request's records.

    `schemas` is called when the first value needs a schema; all schemas that the request needs are asked for
    within `timeout_ms`. `as_bytes`: no value is decoded.
    """

    def __init__(
        self, schemas: Callable[[], Schemas], clock: Clock, timeout_ms: float, *, as_bytes: bool = False
    ) -> None:
        self._schemas = schemas
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._as_bytes = as_bytes
        self._deadline: Deadline | None = None
        self._told = False
        self._found: dict[int, Decoder | Exception] = {}

    def read(self, layout: Layout, record: Record) -> Record:
        """Give the record with its value's form, the value decoded.

        Raises ValueNotDecodable, RegistryUnavailable, BadConfig where no registry is set up.
        """
        if self._as_bytes:
            return record._replace(form=BYTES)
        value_format = layout.options.value_format
        if value_format == "registry" and record.left_in_kafka_bytes is None:
            return self._decoded(record)
        if value_format == "bytes":
            return record._replace(form=BYTES)
        if value_format in {"text", "json"} and record.left_in_kafka_bytes is None:
            return _as_text(record, value_format)
        return record

    def shown(self, layout: Layout, record: Record) -> Record:
        """As `read`, but a value that can't be decoded stays as it is, and tells why."""
        try:
            return self.read(layout, record)
        except ValueNotDecodable as error:
            return record._replace(form=ValueForm("base64", error.schema_id, None, error.reason))
        except (RegistryUnavailable, BadConfig) as error:
            self._tell(error)
            why = "no Schema Registry is set up" if isinstance(error, BadConfig) else str(error)
            schema_id = _wire_format().split(record.value).schema_id
            return record._replace(form=ValueForm("base64", schema_id, None, why))

    def _tell(self, error: Exception) -> None:
        """Log what is on our side, once a request: no problem document does it for a row."""
        if not self._told:
            _log.warning("values are shown as bytes: %s; cause: %r", error, error.__cause__)
            self._told = True

    def answer(self, answer: Answer) -> Answer:
        """An answer with its record shown."""
        if answer.record is None:
            return answer
        shown = self.shown(answer.layout, answer.record)
        return answer if shown is answer.record else answer._replace(record=shown)

    def answers(self, answers: Iterable[Answer]) -> list[Answer]:
        """Answers with their records shown."""
        return [self.answer(each) for each in answers]

    def rows(self, rows: Iterable[tuple[bytes, Any]]) -> list[tuple[bytes, Any]]:
        """Rows of keys of one topic and what was found, the answers among them shown."""
        rows = list(rows)
        sample = next((found for _, found in rows if isinstance(found, Answer)), None)
        if sample is None or (sample.layout.options.value_format == "auto" and not self._as_bytes):
            return rows
        return [(key, self.answer(found) if isinstance(found, Answer) else found) for key, found in rows]

    def entries(self, layout: Layout, entries: Iterable[HistoryEntry]) -> list[HistoryEntry]:
        """A history's entries, their records shown."""
        return [self._entry(layout, entry) for entry in entries]

    def _entry(self, layout: Layout, entry: HistoryEntry) -> HistoryEntry:
        if entry.record is None:
            return entry
        shown = self.shown(layout, entry.record)
        return entry if shown is entry.record else replace(entry, record=shown)

    def _decoded(self, record: Record) -> Record:
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
        """Ask once a request, however many values there are: a failure is a failure for all of them."""
        found = self._found.get(schema_id)
        if found is None:
            if self._deadline is None:
                self._deadline = Deadline.after_ms(self._timeout_ms, self._clock)
            try:
                found = self._schemas().decoder(schema_id, self._deadline)
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


def _as_text(record: Record, value_format: str) -> Record:
    position = str(record.position)
    try:
        text = record.value.decode()
    except UnicodeDecodeError as error:
        raise ValueNotDecodable(position, "it is no UTF-8") from error
    if value_format == "json" and not is_json(text):
        raise ValueNotDecodable(position, "it is no JSON")
    return record._replace(form=ValueForm(value_format))
