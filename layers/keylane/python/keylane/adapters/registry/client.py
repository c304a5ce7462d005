"""The client of a Schema Registry: Confluent's API, which Apicurio, Karapace and Redpanda serve too.

    GET  /schemas/ids/ID                        {"schema": ..., "schemaType": ..., "references": [...]}
    GET  /schemas/ids/ID/versions               [{"subject": ..., "version": ...}, ...]
    GET  /subjects/SUBJECT/versions             [1, 2, ...]
    GET  /subjects/SUBJECT/versions/VERSION     as for /schemas/ids/ID; VERSION may be `latest`
         ?deleted=true                          also what is deleted softly: records of it are still in Kafka
    POST /subjects/SUBJECT/versions             {"schema": ..., "schemaType": ...} -> {"id": ...};
                                                registering it again returns the same id

A Protobuf schema is returned as it was registered, as the text of a .proto file or as a descriptor in base64:
not every registry can convert one into the other.
"""

import math
from typing import Any, NamedTuple
from urllib.parse import quote

from keylane.adapters.registry.circuit import Circuit
from keylane.adapters.registry.http import JsonHttp
from keylane.adapters.registry.login import RegistrySettings
from keylane.errors import RegistryUnavailable
from keylane.ports import Deadline, SchemaRefused

REFERENCES_LIMIT = 200
SCHEMA_CHARACTERS_LIMIT = 1024 * 1024
"""Of a schema, and of all those that it refers to: about a second of reading."""
FOREIGN_ID_MS = 10_000
"""How long an id counts as foreign to a subject; then the registry is asked again."""
FOREIGN_IDS_LIMIT = 1_000
VERSIONS_LIMIT = 10_000
AVRO, JSON, PROTOBUF = KINDS = ("AVRO", "JSON", "PROTOBUF")
_OK, _NOT_FOUND = 200, 404
_REJECTED = {409, 422}


class SchemaReference(NamedTuple):
    """Another schema, and the name under which the referring schema knows it."""

    name: str
    subject: str
    version: int


class RegisteredSchema(NamedTuple):
    """A schema as the registry returns it; `kind`: AVRO, PROTOBUF or JSON."""

    kind: str
    text: str
    references: list[SchemaReference]


_Seen = dict[tuple[str, int], RegisteredSchema]
_DELETED = "?deleted=true"


class RegistryClient:
    """Requests to one registry. All methods raise RegistryUnavailable."""

    def __init__(self, settings: RegistrySettings, circuit: Circuit) -> None:
        self._http = JsonHttp(settings, circuit)
        self._versions: dict[tuple[str, int], int] = {}
        self._foreign: dict[tuple[str, int], float] = {}

    def schema(self, schema_id: int, deadline: Deadline) -> RegisteredSchema:
        """The schema of an id. Raises SchemaRefused where the registry has none."""
        return self._schema(f"/schemas/ids/{schema_id}", f"schema {schema_id}", deadline)

    def latest(self, subject: str, deadline: Deadline) -> RegisteredSchema:
        """The latest version of a subject. Raises SchemaRefused where the registry does not have it."""
        return self._schema(f"{_versions_path(subject)}/latest", f"subject {subject!r}", deadline)

    def versions(self, subject: str, deadline: Deadline) -> list[int]:
        """The versions of a subject, deleted ones too. Raises SchemaRefused where the registry has none."""
        found = self._get(_versions_path(subject) + _DELETED, deadline)
        if found is None:
            raise SchemaRefused(f"the Schema Registry does not have subject {subject!r}")
        if not isinstance(found, list) or not all(isinstance(each, int) for each in found):
            raise RegistryUnavailable("the Schema Registry's answer is not a list of versions")
        return found

    def version(self, subject: str, version: int, deadline: Deadline) -> tuple[int, RegisteredSchema]:
        """A version of a subject, deleted or not, with its id. Raises SchemaRefused where there is none."""
        what = f"version {version} of subject {subject!r}"
        found = self._get(f"{_versions_path(subject)}/{version}{_DELETED}", deadline)
        schema = _parse_schema(found, what)
        schema_id = found.get("id")
        if not isinstance(schema_id, int):
            raise RegistryUnavailable("the Schema Registry's answer is not a version of a subject")
        return schema_id, schema

    def referenced(self, schema: RegisteredSchema, deadline: Deadline) -> list[tuple[str, str]]:
        """Names and texts of all schemas that the schema refers to, dependencies first.

        Raises ValueError where the registry lacks one of them, or there are too many.
        """
        texts: dict[str, str] = {}
        self._follow(schema, texts, {}, deadline)
        return list(texts.items())

    def _follow(
        self, schema: RegisteredSchema, texts: dict[str, str], seen: _Seen, deadline: Deadline
    ) -> None:
        for name, subject, version in schema.references:
            referenced = seen.get((subject, version))
            if referenced is None:
                if len(seen) >= REFERENCES_LIMIT:
                    raise ValueError(f"the schema refers to more than {REFERENCES_LIMIT} other schemas")
                what = f"{name[:100]!r}, to which the schema refers"
                path = f"{_versions_path(subject)}/{version}{_DELETED}"
                referenced = seen[subject, version] = self._schema(path, what, deadline)
                self._follow(referenced, texts, seen, deadline)
            # One version may have several names: each schema knows it by its own.
            texts[name] = referenced.text
            if len(texts) > REFERENCES_LIMIT:
                raise ValueError(f"the schema refers to more than {REFERENCES_LIMIT} names of other schemas")
            if sum(map(len, texts.values())) > SCHEMA_CHARACTERS_LIMIT:
                raise ValueError(f"the schema refers to more than {SCHEMA_CHARACTERS_LIMIT} characters")

    def id_of(self, subject: str, version: int | None, deadline: Deadline) -> int:
        """The id of a version of a subject, None: of the latest. Raises SchemaRefused if it has none."""
        found = self._get(f"{_versions_path(subject)}/{version or 'latest'}", deadline)
        if found is None:
            what = "" if version is None else f"version {version} of "
            raise SchemaRefused(f"the Schema Registry does not have {what}subject {subject!r}")
        known = found if isinstance(found, dict) else {}
        schema_id, number = known.get("id"), known.get("version")
        if not isinstance(schema_id, int) or not isinstance(number, int):
            raise RegistryUnavailable("the Schema Registry's answer is not a version of a subject")
        self._keep_version(subject, schema_id, number)
        return schema_id

    def version_of(self, subject: str, schema_id: int, deadline: Deadline) -> int | None:
        """The version of the subject that the schema is, None if it is none; once it is one, it stays one."""
        pair = subject, schema_id
        if pair in self._versions:
            return self._versions[pair]
        now_s = deadline.clock.monotonic_s()
        if self._foreign.get(pair, -math.inf) > now_s:
            return None
        versions = self._get(f"/schemas/ids/{schema_id}/versions", deadline)
        if not isinstance(versions, list | None):
            raise RegistryUnavailable("the Schema Registry's answer is not a list of versions")
        for each in versions or ():
            if isinstance(each, dict) and each.get("subject") == subject:
                version = each.get("version")
                self._keep_version(*pair, version if isinstance(version, int) else 0)
                return self._versions[pair]
        if len(self._foreign) >= FOREIGN_IDS_LIMIT:
            self._foreign.clear()
        self._foreign[pair] = now_s + FOREIGN_ID_MS / 1000
        return None

    def _keep_version(self, subject: str, schema_id: int, version: int) -> None:
        if len(self._versions) >= VERSIONS_LIMIT:
            self._versions.clear()
        self._versions[subject, schema_id] = version

    def register(self, subject: str, kind: str, schema: str, deadline: Deadline) -> int:
        """Register a schema under a subject and return its id. Raises SchemaRefused if that is rejected."""
        document = {"schema": schema} if kind == AVRO else {"schema": schema, "schemaType": kind}
        status, found = self._http.request(_versions_path(subject), deadline, document)
        if status in _REJECTED and _has_code(found):
            reason = str(found.get("message"))[:300]
            raise SchemaRefused(f"the Schema Registry rejects the schema: {reason}")
        if status != _OK:
            raise _unexpected(status)
        schema_id = found.get("id") if isinstance(found, dict) else None
        if not isinstance(schema_id, int):
            raise RegistryUnavailable("the Schema Registry answered without an id")
        self._foreign.pop((subject, schema_id), None)
        return schema_id

    def _schema(self, path: str, what: str, deadline: Deadline) -> RegisteredSchema:
        return _parse_schema(self._get(path, deadline), what)

    def _get(self, path: str, deadline: Deadline) -> Any:
        """The JSON at the path, None where the registry says that there is nothing."""
        status, found = self._http.request(path, deadline)
        if status == _OK and isinstance(found, dict | list):
            return found
        # 40401, 40402, 40403: no such subject, version, schema. Any other 404 comes from another server.
        if status == _NOT_FOUND and _has_code(found):
            return None
        raise _unexpected(status)


def _parse_schema(found: Any, what: str) -> RegisteredSchema:
    if found is None:
        raise SchemaRefused(f"the Schema Registry does not have {what}")
    try:
        references = [
            SchemaReference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in found.get("references") or ()
        ]
        schema = RegisteredSchema(str(found.get("schemaType") or AVRO), found["schema"], references)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RegistryUnavailable("the Schema Registry's answer is not a schema") from error
    if not isinstance(schema.text, str):
        raise RegistryUnavailable("the Schema Registry's answer is not a schema")
    if len(schema.text) > SCHEMA_CHARACTERS_LIMIT:
        raise ValueError(f"{what} has more than {SCHEMA_CHARACTERS_LIMIT} characters")
    return schema


def _versions_path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions"


def _has_code(found: Any) -> bool:
    return isinstance(found, dict) and "error_code" in found


def _unexpected(status: int) -> RegistryUnavailable:
    what = "with a body that is not JSON" if status == _OK else f"with status {status}"
    return RegistryUnavailable(f"the Schema Registry answered {what}")
