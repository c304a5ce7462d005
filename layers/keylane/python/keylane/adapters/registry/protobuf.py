"""Protobuf messages as JSON, by a Schema Registry's schemas and without generated code.

Source: protobuf.dev, "ProtoJSON Format": names in lowerCamelCase, 64 bit integers as strings, bytes in
base64, well-known types in their special forms. Fields without presence appear with their default value, as
in Confluent's REST Proxy: a reader sees a 0, not a gap.
"""

from __future__ import annotations

import base64
import importlib
import json
import re
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from keylane.adapters.registry import proto_parser
from keylane.adapters.registry.protobuf_budget import Budget
from keylane.adapters.registry.protobuf_builtin import CONFLUENT_FILES
from keylane.formats import confluent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.descriptor_pb2 import DescriptorProto
    from google.protobuf.message import Message

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_FILE_NAME = "keylane/value.proto"
_PACKAGES = ("google/protobuf/", "google/type/")


def decoder(schema: str, references: Sequence[tuple[str, str]]) -> Callable[[bytes], str]:
    """Return a function from a value's bytes, message indexes first, to its JSON text.

    `schema` and each reference (import name, text) are the text of a .proto, or a file descriptor in base64.
    Both raise ValueError; its message says what is wrong.
    """
    compiled = compile_schema(schema, references)
    return lambda payload: _decode(*compiled, payload)


def compile_schema(
    schema: str, references: Sequence[tuple[str, str]]
) -> tuple[FileDescriptorProto, descriptor_pool.DescriptorPool, Budget]:
    """Return the file of a schema, a pool with it and all that it imports, and the budget of its messages.

    The arguments are those of `decoder`. Raises ValueError.
    """
    try:
        imported = {name: _file_of(text, name) for name, text in references}
        file = _file_of(schema, _FILE_NAME)
    except RecursionError:
        raise ValueError("the .proto is nested too deeply") from None
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(proto: FileDescriptorProto, path: tuple[str, ...] = ()) -> None:
        if proto.name in added:
            return
        if proto.name in path:
            raise ValueError(f"the schema's file {proto.name[:100]!r} imports itself")
        for name in proto.dependency:
            add(imported.get(name) or _builtin(name), (*path, proto.name))
        pool.Add(proto)
        added.add(proto.name)

    try:
        add(file)
        budget = Budget(pool.FindFileByName(file.name))
    except (KeyError, TypeError) as error:
        raise ValueError(f"the schema is not a complete Protobuf file: {error}") from error
    return file, pool, budget


def _decode(
    file: FileDescriptorProto, pool: descriptor_pool.DescriptorPool, budget: Budget, payload: bytes
) -> str:
    indexes, data = confluent.message_indexes(payload)
    message = _message_of(file, pool, indexes)
    budget.check(message.DESCRIPTOR, data)
    try:
        message.ParseFromString(data)
        if budget.may_hide:
            _refuse_unknown(message)
        found = json_format.MessageToDict(
            message, always_print_fields_with_no_presence=True, descriptor_pool=pool
        )
        return json.dumps(found, ensure_ascii=False)
    except (DecodeError, json_format.Error, TypeError, RecursionError) as error:
        raise ValueError(str(error) or "the value is not a message of its type") from error


def _refuse_unknown(message: Message) -> None:
    """Raise ValueError for data that no field shows: of an extension, or an enum's unknown number.

    Other unknown fields are those of a newer type: every reader leaves them out.
    """
    descriptor = message.DESCRIPTOR
    for unknown in UnknownFieldSet(message):
        number = unknown.field_number
        is_extension = descriptor.is_extendable and any(
            first <= number < end for first, end in descriptor.extension_ranges
        )
        if is_extension or number in descriptor.fields_by_number:
            kind = "an extension" if is_extension else "a value of its field"
            raise ValueError(f"{descriptor.full_name} has {kind} {number}, which its schema does not know")
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            inner = value.values() if field.message_type.fields_by_name["value"].message_type else ()
        else:
            inner = value if field.is_repeated else (value,)
        for each in inner:
            _refuse_unknown(each)


def _message_of(
    file: FileDescriptorProto, pool: descriptor_pool.DescriptorPool, indexes: tuple[int, ...]
) -> Message:
    """An empty message of the type at the indexes, which count types in the order of the file."""
    name, types = file.package, list(file.message_type)
    for index in indexes:
        if not 0 <= index < len(types):
            raise ValueError(f"the schema has no message type at index {', '.join(map(str, indexes))}")
        chosen: DescriptorProto = types[index]
        name, types = f"{name}.{chosen.name}" if name else chosen.name, list(chosen.nested_type)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()


def _file_of(text: str, name: str) -> FileDescriptorProto:
    # The text of a .proto always contains a blank or a semicolon, base64 never does.
    if not _BASE64.fullmatch(text):
        return proto_parser.parse(text, name)
    try:
        proto = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError) as error:
        raise ValueError("the schema is neither the text of a .proto nor its descriptor") from error
    proto.name = name
    return proto


def _builtin(name: str) -> FileDescriptorProto:
    """A file of Protobuf, of Google's common types or of Confluent: these are never registered."""
    data = CONFLUENT_FILES.get(name)
    if data is None and name.startswith(_PACKAGES) and name.endswith(".proto"):
        try:
            module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        except ImportError:
            module = None
        data = module.DESCRIPTOR.serialized_pb if module else None
    if data is None:
        raise ValueError(f"the schema imports {name[:100]!r} without a reference to it")
    return FileDescriptorProto.FromString(data)
