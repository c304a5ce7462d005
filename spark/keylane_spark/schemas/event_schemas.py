"""Judges change events in a Schema Registry's wire format by their schemas."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keylane.adapters.registry.circuit import Circuit
from keylane.adapters.registry.client import AVRO, JSON, RegistryClient
from keylane.adapters.registry.login import RegistrySettings
from keylane.errors import RegistryUnavailable
from keylane.formats.confluent import PREFIX_BYTES
from keylane.ports import Clock, Deadline
from keylane_spark.rows.change_events import INVALID, Judge, Verdicts, judge_json
from keylane_spark.rows.records import tails_of
from keylane_spark.schemas.avro_events import AvroEvents

T = TypeVar("T")
TIMEOUT_MS = 5_000
UNREAD_S = 1.0
_UNREAD = re.compile(r"schema (\d+): ")
UNKNOWN_S = 10.0
"""How long a schema that the registry does not have, or that cannot be used, is not asked for again."""


@functools.cache
def registry_client(settings: RegistrySettings) -> RegistryClient:
    """Return the client of a process: all that it reads of a registry waits for it behind one circuit."""
    return RegistryClient(settings, Circuit(TIMEOUT_MS))


@functools.cache
def framed_judge(settings: RegistrySettings | None) -> Judge:
    """Return the judge of values in the wire format: one for each process, for it keeps the schemas.

    Without a registry none of them is an event.
    """
    return judge_none if settings is None else EventSchemas(registry_client(settings), Clock()).judge


def unread_schema(why: str) -> int | None:
    """Return the schema that the text of a RegistryUnavailable is about; None where it is another text."""
    found = _UNREAD.match(why)
    return int(found[1]) if found else None


def judge_none(values: pa.BinaryArray) -> Verdicts:
    """Return that no value is an event."""
    return np.full(len(values), INVALID)


def rows_by_schema(
    values: pa.BinaryArray, framed: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The ids of the schemas that values name, and which rows name each; `framed`: the rows that name one."""
    prefixes = pc.binary_slice(values.take(pa.array(framed)), 0, PREFIX_BYTES).dictionary_encode()
    codes = prefixes.indices.to_numpy()
    for code, prefix in enumerate(prefixes.dictionary.to_pylist()):
        yield int.from_bytes(prefix[1:], "big"), framed[codes == code]


class KnownSchemas(Generic[T]):
    """What is made of each schema of a registry, once in the life of a process.

    `read`: makes it of a schema's id. Raises RegistryUnavailable, and ValueError where the registry does not
    have the schema, or it can't be used.
    """

    def __init__(self, read: Callable[[int, Deadline], T], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._found: dict[int, T] = {}
        self._unknown_until: dict[int, float] = {}
        self._unread: dict[int, tuple[float, str]] = {}

    def get(self, schema_id: int) -> T | None:
        """Return what was made of the schema; None where the registry has none that can be used, for a while.

        Raises RegistryUnavailable, whose text `unread_schema` reads. A schema is not asked for again for a
        second: each partition of a batch would wait as long as the first.
        """
        if (found := self._found.get(schema_id)) is not None:
            return found
        now_s = self._clock.monotonic_s()
        if self._unknown_until.get(schema_id, now_s) > now_s:
            return None
        unread = self._unread.pop(schema_id, None)
        if unread and unread[0] > now_s:
            self._unread[schema_id] = unread
            raise RegistryUnavailable(unread[1])
        try:
            made = self._found[schema_id] = self._read(schema_id, Deadline.after_ms(TIMEOUT_MS, self._clock))
        except RegistryUnavailable as error:
            why = f"schema {schema_id}: {error}"
            self._unread[schema_id] = self._clock.monotonic_s() + UNREAD_S, why
            raise RegistryUnavailable(why) from error
        except ValueError:
            # Readers of such a value are answered why.
            self._unknown_until[schema_id] = now_s + UNKNOWN_S
            return None
        return made


class EventSchemas:
    """One registry's schemas of change events: Avro and JSON Schema."""

    def __init__(self, client: RegistryClient, clock: Clock) -> None:
        self._client = client
        self._judges = KnownSchemas(self._read_schema, clock)

    def judge(self, values: pa.BinaryArray) -> Verdicts:
        """Return the verdicts of values that begin with the byte 0.

        Errors as of `KnownSchemas.get`.
        """
        verdicts = np.full(len(values), INVALID)
        sizes = pc.binary_length(values).to_numpy()
        framed = np.flatnonzero(sizes >= PREFIX_BYTES)
        for schema_id, rows in rows_by_schema(values, framed):
            judge = self._judges.get(schema_id) or judge_none
            verdicts[rows] = judge(values if len(rows) == len(values) else values.take(pa.array(rows)))
        return verdicts

    def _read_schema(self, schema_id: int, deadline: Deadline) -> Judge:
        schema = self._client.schema(schema_id, deadline)
        if schema.kind == AVRO:
            references = [text for _, text in self._client.referenced(schema, deadline)]
            return AvroEvents(schema.text, references).judge
        return _judge_json_schema if schema.kind == JSON else judge_none


def _judge_json_schema(values: pa.BinaryArray) -> Verdicts:
    return judge_json(tails_of(values, PREFIX_BYTES))
