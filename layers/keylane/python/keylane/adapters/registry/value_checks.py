"""The port `Checks`: values as their topics' schemas have them, of the settings or of a Schema Registry.

Imported where settings name a schema, not before.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from keylane.adapters.registry.json_schema import Fault, validator
from keylane.errors import RegistryUnavailable, ValueInvalid
from keylane.formats import confluent
from keylane.model.patterns import fits
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keylane.adapters.registry.subjects import Subjects
    from keylane.errors import KeylaneError
    from keylane.model.records import NewRecord
    from keylane.model.schema_rules import SchemaRule
    from keylane.ports import Clock

    Validator = Callable[[bytes], Fault | None]

FRESH_MS = 60_000
"""How long the latest schema of a subject is taken for that."""
_log = logging.getLogger("keylane")


class ValueChecks:
    """Checks by the first rule that fits a record's topic. `subjects`: None where no rule names one."""

    def __init__(
        self, rules: Sequence[SchemaRule], subjects: Subjects | None, clock: Clock, timeout_ms: float
    ) -> None:
        """`timeout_ms` bounds all that one request asks of the registry. Raises ValueError for no schema."""
        self._rules = [(rule, _made(rule)) for rule in rules]
        self._subjects = subjects
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._latest: dict[str, tuple[int, Validator]] = {}
        self._by_id: dict[int, Validator] = {}

    def faults(self, records: Sequence[NewRecord]) -> list[KeylaneError | None]:
        """As `Checks.faults` has it."""
        deadline = Deadline.after_ms(self._timeout_ms, self._clock)
        away: dict[str, RegistryUnavailable] = {}
        return [self._fault(record, deadline, away) for record in records]

    def _fault(
        self, record: NewRecord, deadline: Deadline, away: dict[str, RegistryUnavailable]
    ) -> KeylaneError | None:
        if record.value is None:
            return None
        fitting = [pair for pair in self._rules if fits(pair[0].pattern, record.topic)]
        if not fitting:
            return None
        rule, check = fitting[0]
        subject = rule.subject_of(record.topic)
        if subject in away:
            return away[subject]
        try:
            schema_id, fault = None, check(record.value) if check else None
            if rule.subject and rule.is_plain:
                fault = self._newest(subject, deadline)(record.value)
            elif rule.subject:
                schema_id, fault = self._framed(subject, record.value, deadline)
        except RegistryUnavailable as error:
            # Asked once a request: it would answer no better for the next record.
            away[subject] = error
            return error
        return None if fault is None else ValueInvalid(record.topic, fault.path, fault.reason, schema_id)

    def _framed(self, subject: str, value: bytes, deadline: Deadline) -> tuple[int | None, Fault | None]:
        """A value in the registry's wire format: the id of its schema, and what is wrong with it."""
        try:
            schema_id, payload = confluent.split(value)
        except ValueError as error:
            return None, Fault("", str(error))
        if not self._known.has(subject, schema_id, deadline):
            return schema_id, Fault("", f"schema {schema_id} is none of subject {subject!r}")
        check = self._by_id.get(schema_id)
        if check is None:
            check = self._by_id[schema_id] = self._of_id(schema_id, deadline)
        return schema_id, check(payload)

    def _of_id(self, schema_id: int, deadline: Deadline) -> Validator:
        schema = self._known.schema(schema_id, deadline)
        if schema.kind == "JSON":
            return _usable(schema.text, schema.references, f"schema {schema_id}")
        decode = self._known.decoder(schema_id, deadline)

        def fault_of(payload: bytes) -> Fault | None:
            try:
                decode(payload)
            except ValueError as error:
                return Fault("", f"it can't be decoded: {error}")
            return None

        return fault_of

    def _newest(self, subject: str, deadline: Deadline) -> Validator:
        """The check by the subject's latest schema; where the registry is away, by the one that was last."""
        now_ms = self._clock.now_ms()
        until_ms, check = self._latest.get(subject, (0, None))
        if check is not None and now_ms < until_ms:
            return check
        try:
            schema = self._known.latest(subject, deadline)
            if schema.kind != "JSON":
                raise RegistryUnavailable(f"the schema of subject {subject!r} is no JSON Schema")  # noqa: TRY301
            check = _usable(schema.text, schema.references, f"the schema of subject {subject!r}")
        except RegistryUnavailable as error:
            if check is None:
                raise
            _log.warning("values are checked by an older schema of subject %r: %s", subject, error)
        self._latest[subject] = now_ms + FRESH_MS, check
        return check

    @property
    def _known(self) -> Subjects:
        if self._subjects is None:
            raise RegistryUnavailable("no Schema Registry is set up")
        return self._subjects


def _made(rule: SchemaRule) -> Validator | None:
    try:
        return None if rule.subject else validator(rule.schema)
    except ValueError as error:
        raise ValueError(f"for {rule.pattern[:100]!r}: {error}") from error


def _usable(text: str, references: Sequence[tuple[str, str]], name: str) -> Validator:
    try:
        schema: Any = json.loads(text)
        return validator(schema, references)
    except (ValueError, RecursionError) as error:
        raise RegistryUnavailable(f"{name} can't be used: {error}") from error
