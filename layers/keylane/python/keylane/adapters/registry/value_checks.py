"""The port `Checks`: values checked by schemas of the settings or of a Schema Registry.

Imported where the settings name a schema, not before.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane.adapters.registry.compiled import CompiledSchemas
from keylane.adapters.registry.decoders import make_decoder
from keylane.adapters.registry.json_schema import Fault, validator
from keylane.adapters.registry.json_schema_bounded import BoundedValidator, bounded_validator
from keylane.errors import RegistryUnavailable, ValueInvalid
from keylane.formats import confluent
from keylane.model.patterns import fits
from keylane.ports import Deadline, FramingFault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keylane.adapters.registry.client import RegisteredSchema, RegistryClient
    from keylane.errors import KeylaneError
    from keylane.model.records import NewRecord
    from keylane.model.schema_rules import SchemaRule
    from keylane.ports import Clock, FramedField

    Validator = Callable[[bytes], Fault | None]

LATEST_MS = 60_000
"""How long a subject's latest schema counts as the latest."""
CHECKS_MS = 5_000
"""How long all checks of one call may take by schemas of a registry, which any writer may register."""
_log = logging.getLogger("keylane")
_TOO_LATE = Fault("", "the checks before it took too long: send fewer records in a request")


@dataclass(slots=True)
class _Call:
    """One call's time: for requests to the registry, and for everything. `unavailable`: by subject."""

    requests: Deadline
    checks: Deadline
    unavailable: dict[str, RegistryUnavailable] = field(default_factory=dict)


class _Latest(NamedTuple):
    """A subject's latest schema, which counts as the latest until then, in monotonic seconds."""

    until_s: float
    schema: RegisteredSchema
    check: BoundedValidator


class ValueChecks:
    """Checks by the first rule whose pattern fits a record's topic."""

    def __init__(
        self,
        rules: Sequence[SchemaRule],
        client: RegistryClient | None,
        clock: Clock,
        compiled: CompiledSchemas[Any] | None = None,
    ) -> None:
        """`client`: None without a Schema Registry. `compiled`: what is kept of schemas, for all threads.

        Raises ValueError for a rule whose schema is not a JSON Schema.
        """
        self._rules = [(rule, None if rule.subject else _compile_rule(rule)) for rule in rules]
        self._registry = client
        self._clock = clock
        self._compiled: CompiledSchemas[Any] = CompiledSchemas() if compiled is None else compiled

    def faults(self, records: Sequence[NewRecord], deadline: Deadline) -> list[KeylaneError | None]:
        """See `ports.Checks`."""
        call = _Call(deadline, Deadline(deadline.at_s + CHECKS_MS / 1000, deadline.clock))
        return [self._fault(record, call) for record in records]

    def framing_faults(self, framed: Sequence[FramedField], deadline: Deadline) -> list[FramingFault | None]:
        """See `ports.Checks`."""
        checks = Deadline(deadline.at_s + CHECKS_MS / 1000, deadline.clock)
        faults: list[FramingFault | None] = []
        try:
            for subject, data in framed:
                if not checks.remaining_s:
                    fault: Fault | None = _TOO_LATE
                else:
                    _, fault = self._check_framed(subject, data, deadline)
                faults.append(None if fault is None else FramingFault(fault.path, fault.reason))
        except RegistryUnavailable as error:
            _log.warning("values are written whose schemas are not known: %s", error)
        return faults + [None] * (len(framed) - len(faults))

    def _fault(self, record: NewRecord, call: _Call) -> KeylaneError | None:
        if record.value is None:
            return None
        fitting = (pair for pair in self._rules if fits(pair[0].pattern, record.topic))
        rule, check = next(fitting, (None, None))
        if rule is None:
            return None
        subject = rule.subject_of(record.topic)
        if subject in call.unavailable:
            return call.unavailable[subject]
        try:
            schema_id, fault = None, check(record.value) if check else None
            if rule.subject and not call.checks.remaining_s:
                fault = _TOO_LATE
            elif rule.subject and rule.is_plain:
                fault = self._latest_validator(subject, call.requests)(record.value)
            elif rule.subject:
                schema_id, fault = self._check_framed(subject, record.value, call.requests)
        except RegistryUnavailable as error:
            # One attempt a request: the next record would fare no better.
            call.unavailable[subject] = error
            return error
        return None if fault is None else ValueInvalid(record.topic, fault.path, fault.reason, schema_id)

    def _check_framed(
        self, subject: str, value: bytes, deadline: Deadline
    ) -> tuple[int | None, Fault | None]:
        """Check a value in Confluent's wire format; return its schema's id and the fault."""
        try:
            schema_id, payload = confluent.split(value)
        except ValueError as error:
            return None, Fault("", str(error))
        if self._client.version_of(subject, schema_id, deadline) is None:
            return schema_id, Fault("", f"schema {schema_id} is not a version of subject {subject!r}")
        check: Validator | None = self._compiled.get(schema_id)
        if check is None:
            try:
                made = self._compile(self._client.schema(schema_id, deadline), deadline)
            except (ValueError, RecursionError) as error:
                raise RegistryUnavailable(f"schema {schema_id} can't be used: {error}") from error
            check = self._compiled.keep(schema_id, made.find_fault, made.size_bytes)
        return schema_id, check(payload)

    def _latest_validator(self, subject: str, deadline: Deadline) -> Validator:
        """Return the check by the subject's latest schema, or by an older one if the registry is down.

        Raises RegistryUnavailable if no schema of the subject was read before.
        """
        now_s = self._clock.monotonic_s()
        known: _Latest | None = self._compiled.get(subject)
        if known is not None and now_s < known.until_s:
            return known.check.find_fault
        try:
            latest = self._fetch_latest(subject, known, deadline)
        except RegistryUnavailable as error:
            if known is None:
                raise
            latest = known
            _log.warning("values are checked by an older schema of subject %r: %s", subject, error)
        latest = latest._replace(until_s=now_s + LATEST_MS / 1000)
        self._compiled.keep(subject, latest, latest.check.size_bytes)
        return latest.check.find_fault

    def _fetch_latest(self, subject: str, known: _Latest | None, deadline: Deadline) -> _Latest:
        try:
            schema = self._client.latest(subject, deadline)
            if known is not None and schema == known.schema:
                return known  # what it refers to are versions, which stay as they are
            if schema.kind != "JSON":
                raise ValueError(f"its type is {schema.kind[:50]!r}, not JSON")  # noqa: TRY301
            return _Latest(0.0, schema, self._compile(schema, deadline))
        except (ValueError, RecursionError) as error:
            raise RegistryUnavailable(f"the schema of subject {subject!r} can't be used: {error}") from error

    def _compile(self, schema: RegisteredSchema, deadline: Deadline) -> BoundedValidator:
        """The check by a schema. Raises ValueError, RecursionError for one that cannot be used."""
        if schema.kind == "JSON":
            return bounded_validator(schema.text, self._client.referenced(schema, deadline))
        decoder = make_decoder(self._client, schema, deadline)

        def find_fault(payload: bytes) -> Fault | None:
            try:
                decoder.decode(payload)
            except ValueError as error:
                return Fault("", f"the value can't be decoded: {error}")
            return None

        return BoundedValidator(find_fault, decoder.size_bytes)

    @property
    def _client(self) -> RegistryClient:
        if self._registry is None:
            raise RegistryUnavailable("no Schema Registry is configured")
        return self._registry


def _compile_rule(rule: SchemaRule) -> Validator:
    try:
        return validator(rule.schema)
    except ValueError as error:
        raise ValueError(f"for {rule.pattern[:100]!r}: {error}") from error
