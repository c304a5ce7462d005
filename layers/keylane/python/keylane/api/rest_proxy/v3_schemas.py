"""Keys and values with registered schemas, as Confluent's REST Proxy v3 takes them, each record its own.

    {"type": "AVRO", "schema": "{...}", "data": ...}       a schema's text, which is registered
    {"schema_id": 7, "data": ...}                          the id of a version of the topic's subject
    {"schema_version": 2, "data": ...}                     the number of one
    {"data": ...}                                          its latest version

`type` is AVRO, JSONSCHEMA or PROTOBUF. The subject is that of the topic, `TOPIC-key` or `TOPIC-value`: a
caller who may write one topic could otherwise register schemas for another one. `subject` and
`subject_name_strategy` may say so, and nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from keylane import errors
from keylane.api.rest_proxy.v2_answers import NOT_AUTHORIZED, UNPROCESSABLE
from keylane.api.rest_proxy.v2_scalars import read_integer, read_string
from keylane.api.rest_proxy.v2_schemas import (
    AVRO,
    JSON,
    NO_REGISTRY,
    NO_SCHEMA,
    PROTOBUF,
    REFUSED,
    RequestSchemas,
    encode,
)
from keylane.errors import RecordMalformed, RecordRejected
from keylane.formats.avro_schema import NotOfSchema
from keylane.model.routes import PermissionKind
from keylane.model.served_topics import ServedTopics
from keylane.ports import Deadline, SchemaEncoder, SchemaRefused, SchemaWriter

Scalar = TypeVar("Scalar")
TYPES = {"AVRO": AVRO, "JSONSCHEMA": JSON, "PROTOBUF": PROTOBUF}
"""REST Proxy's type of data -> the type of its schema, as registries call it."""
_NAMES = {kind: name for name, kind in TYPES.items()}
SCHEMA_FIELDS = ("subject", "subject_name_strategy", "schema_id", "schema_version", "schema")
_CHOICES = SCHEMA_FIELDS[2:]
STRATEGY = "TOPIC_NAME"
STRATEGIES = (STRATEGY, "RECORD_NAME", "TOPIC_RECORD_NAME")


class DataForm(NamedTuple):
    """The type of a key or value, and its schema, as a report has them."""

    type: str
    subject: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None


class _Choice(NamedTuple):
    """Which schema of a subject a key or value names."""

    kind: str | None
    schema_id: int | None
    version: int | None
    text: str | None


@dataclass(slots=True)
class RecordSchemas:
    """The schemas that the records of one request name: each is looked up once, and has one attempt.

    `requests`: None without a Schema Registry.
    """

    requests: RequestSchemas | None
    topic: str
    served: ServedTopics
    _found: dict[tuple[str, _Choice], SchemaEncoder | RecordRejected] = field(default_factory=dict)
    _checks: Deadline | None = None

    def encode(self, content: Mapping[str, Any], name: str) -> tuple[DataForm, bytes | None]:
        """Return the form and the bytes of a `key` or `value`. Raises RecordRejected."""
        choice = _parse_choice(content, name)
        subject = f"{self.topic}-{name}"
        _check_subject(content, name, subject)
        schema = self._find(subject, name, choice)
        form = DataForm(_NAMES.get(schema.kind, schema.kind), subject, schema.schema_id, schema.version)
        data = content.get("data")
        if data is None:
            return form, None
        try:
            return form, encode(schema, data, self._checks)
        except NotOfSchema as error:
            raise RecordRejected(f"{error.path_below(f'{name}.data')} {error}") from None
        except errors.RegistryUnavailable as error:
            raise RecordRejected(f"{name}: {error}", REFUSED) from error

    def _find(self, subject: str, name: str, choice: _Choice) -> SchemaEncoder:
        key = subject, choice
        if key not in self._found:
            try:
                self._found[key] = self._look_up(subject, choice)
            except RecordRejected as error:
                self._found[key] = error
            except errors.TopicNotServed as error:
                self._found[key] = RecordRejected(str(error), NOT_AUTHORIZED)
            except (SchemaRefused, errors.RegistryUnavailable) as error:
                self._found[key] = RecordRejected(f"the schema of the {name} can't be used: {error}", REFUSED)
            except ValueError as error:
                self._found[key] = RecordRejected(
                    f"the schema of the {name} can't be used: {error}", NO_SCHEMA
                )
        found = self._found[key]
        if isinstance(found, RecordRejected):
            raise found
        return found

    def _look_up(self, subject: str, choice: _Choice) -> SchemaEncoder:
        if self.requests is None:
            raise RecordRejected(
                "data with a schema need a Schema Registry: the service has none", NO_REGISTRY
            )
        # Before a schema may be registered for the topic.
        self.served.check(self.topic, PermissionKind.WRITE)
        if self._checks is None:
            self._checks = self.requests.checks_deadline()
        with self.requests.wait.asking() as deadline:
            if not deadline.remaining_s:
                # Records may name any number of schemas, and each takes time to be read.
                raise errors.RegistryUnavailable("the request's time for its schemas is over")
            return self._ask(self.requests.open(), subject, choice, deadline)

    @staticmethod
    def _ask(registry: SchemaWriter, subject: str, choice: _Choice, deadline: Deadline) -> SchemaEncoder:
        if choice.text is not None and choice.kind is not None:
            return registry.registered(subject, choice.kind, choice.text, deadline)
        schema_id = choice.schema_id
        if schema_id is None:
            try:
                schema_id = registry.id_of(subject, choice.version, deadline)
            except SchemaRefused as error:
                # REST Proxy answers so, unlike for a subject without any version.
                raise RecordRejected(f"{error}", 400 if choice.version else REFUSED) from error
        return registry.encoder(subject, schema_id, deadline)


def _parse_choice(content: Mapping[str, Any], name: str) -> _Choice:
    given = [each for each in _CHOICES if content.get(each) is not None]
    if len(given) > 1:
        raise RecordMalformed(f"{name}: only one of {', '.join(_CHOICES)} can be used")
    kind = content.get("type")
    if kind is not None and given != ["schema"]:
        raise RecordMalformed(f"{name}: 'type={kind}' needs 'schema', and nothing else that names one")
    if kind is None and given == ["schema"]:
        raise RecordRejected(f"{name}: 'schema' needs 'type', one of {', '.join(TYPES)}")
    version = _scalar(content, name, "schema_version", read_integer)
    if version is not None and version < 1:
        raise RecordRejected(f"{name}.schema_version is not 1 or more")
    schema_id = _scalar(content, name, "schema_id", read_integer)
    text = _scalar(content, name, "schema", read_string)
    return _Choice(None if kind is None else TYPES[kind], schema_id, version, text)


def _check_subject(content: Mapping[str, Any], name: str, subject: str) -> None:
    given, strategy = (_scalar(content, name, each, read_string) for each in SCHEMA_FIELDS[:2])
    if given is not None and strategy is not None:
        raise RecordMalformed(f"{name}: only one of subject_name_strategy and subject can be used")
    if strategy is not None and strategy not in STRATEGIES:
        raise RecordMalformed(f"{name}.subject_name_strategy is not one of {', '.join(STRATEGIES)}")
    if given not in (None, subject):
        raise RecordRejected(f"{name}.subject is not that of the topic, {subject!r}", UNPROCESSABLE)
    if strategy not in (None, STRATEGY):
        if content.get("schema_id") is None and content.get("schema") is None:
            raise RecordRejected(f"{name}: {strategy} needs schema_id or schema")
        fault = f"{name}.subject_name_strategy is not {STRATEGY}: subjects are those of topics"
        raise RecordRejected(fault, UNPROCESSABLE)


def _scalar(content: Mapping[str, Any], name: str, field_name: str, read: Callable[[Any], Scalar]) -> Scalar:
    try:
        return read(content.get(field_name))
    except ValueError as error:
        raise RecordMalformed(f"{name}.{field_name} {error}") from error
