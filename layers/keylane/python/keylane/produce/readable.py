"""Refuses records that their topic's readers could not read, unless a client asks for it (`raw=true`).

    value_format = "registry"   a value names a schema that is a version of TOPIC-value, and is of it
    value_format = "json"       JSON, as "text" is UTF-8
    envelope = "debezium"       a change event
    key_format = "registry"     a key names a schema that is a version of TOPIC-key, and is of it
    key_fields, key_schema      a key has the bytes by which readers find it

Of a topic with a rule in KEYLANE_SCHEMAS the rule decides on values of a registry. While the registry does
not answer, such values and keys need to name a schema, whichever it is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from keylane.errors import BadRequest, KeylaneError, KeyUnreadable, ValueUnreadable
from keylane.formats.change_events import parse_event
from keylane.formats.json_text import is_json
from keylane.model.records import NewRecord, Options
from keylane.model.schema_rules import default_subject
from keylane.ports import Checks, FramedField, FramingFault, WaitBudget
from keylane.produce.topic_formats import TopicFormats
from keylane.state.json_keys import encode_json, json_keys

_UNFRAMED = "it does not begin with the byte 0 and a schema id"
_REGISTRY = "registry"


@dataclass(frozen=True, slots=True)
class ReadersRules:
    """`checks` opens those by schemas, None without a Schema Registry.

    `is_ruled`: whether KEYLANE_SCHEMAS has a rule for a topic.
    """

    formats: TopicFormats
    checks: Callable[[], Checks] | None = None
    is_ruled: Callable[[str], bool] = lambda _: False

    def key_of(self, topic: str, key: bytes) -> bytes:
        """Return the bytes of a key that is given by its values, or as it is. Raises BadRequest."""
        options = self.formats.options_of(topic)
        form = json_keys(options) if options.has_typed_keys else None
        return key if form is None or key_fault(key, options) is None else encode_json(form, key)

    def expectations(self, topics: Iterable[str]) -> dict[str, Options]:
        """Return the options of those topics whose readers can't read everything."""
        found = {}
        for topic in topics:
            options = self.formats.options_of(topic)
            if options.value_format != "auto" or options.envelope != "none" or options.has_typed_keys:
                found[topic] = options
        return found

    def faults(
        self, records: Sequence[NewRecord], options: Mapping[str, Options], registry_wait: WaitBudget
    ) -> list[KeylaneError | None]:
        """Return the fault of each record, None if it can be read; `options`: those of `expectations`."""
        faults = [
            _fault(record, options[record.topic]) if record.topic in options else None for record in records
        ]
        if self.checks is None:
            return faults
        framed = [
            (index, each)
            for index, record in enumerate(records)
            if faults[index] is None and record.topic in options
            for each in self._framed(record, options[record.topic])
        ]
        if framed:
            with registry_wait.asking() as deadline:
                found = self.checks().framing_faults([each for _, each in framed], deadline)
            for (index, each), fault in zip(framed, found, strict=True):
                if fault is not None and faults[index] is None:
                    faults[index] = _not_of_subject(records[index], each, fault)
        return faults

    def _framed(self, record: NewRecord, options: Options) -> Iterator[FramedField]:
        if options.key_format == _REGISTRY and record.key:
            yield FramedField(default_subject(record.topic, "key"), record.key)
        if options.value_format == _REGISTRY and record.value is not None and not self.is_ruled(record.topic):
            yield FramedField(default_subject(record.topic, "value"), record.value)


def _fault(record: NewRecord, options: Options) -> KeylaneError | None:
    if record.key:
        reason = key_fault(record.key, options)
        if reason:
            return KeyUnreadable(record.topic, reason)
    if record.value is None or options.transform is not None:
        return None
    reason = _value_fault(record.value, options)
    if not reason:
        return None
    return ValueUnreadable(record.topic, reason, by_schema=options.value_format == _REGISTRY)


def key_fault(key: bytes, options: Options) -> str | None:
    """Return why readers would not find a typed key by its values; None if they would."""
    if options.key_format == _REGISTRY:
        return None if _is_framed(key) else _UNFRAMED
    form = json_keys(options)
    if form is None:
        return None
    shown = form.show(key)
    try:
        wanted = encode_json(form, key if shown is None else shown.encode())
    except BadRequest as error:
        return str(error)
    return None if wanted == key else f"readers ask for it as {wanted.decode()[:300]}"


def _value_fault(value: bytes, options: Options) -> str | None:
    if options.value_format == _REGISTRY:
        return None if _is_framed(value) else _UNFRAMED
    if options.value_format not in {"json", "text"} and options.envelope == "none":
        return None
    try:
        text = value.decode()
        if options.envelope != "none":
            parse_event(text)
    except UnicodeDecodeError:
        return "it is not UTF-8"
    except ValueError as error:
        return str(error)
    return "it is not valid JSON" if options.value_format == "json" and not is_json(text) else None


def _is_framed(data: bytes) -> bool:
    from keylane.formats import confluent  # noqa: PLC0415 (for the few topics of a registry)

    try:
        confluent.split(data)
    except ValueError:
        return False
    return True


def _not_of_subject(record: NewRecord, framed: FramedField, fault: FramingFault) -> KeylaneError:
    if framed.subject == default_subject(record.topic, "key"):
        return KeyUnreadable(record.topic, fault.reason)
    return ValueUnreadable(record.topic, fault.reason, by_schema=True, path=fault.path)
