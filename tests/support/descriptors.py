"""Protobuf's descriptors without what our parser of .proto files skips."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto


def without_skipped(file: FileDescriptorProto) -> FileDescriptorProto:
    """The file without options, services and extensions of options, and with map entries at the end."""
    for name in ("options", "service", "source_code_info"):
        file.ClearField(name)
    own = [each for each in file.extension if not each.extendee.endswith("Options")]
    del file.extension[:]
    file.extension.extend(own)
    for message in file.message_type:
        _strip(message)
    for enum in file.enum_type:
        _strip_enum(enum)
    return file


def _strip(message: DescriptorProto) -> None:
    is_entry = message.options.map_entry
    for name in ("options", "reserved_range", "reserved_name"):
        message.ClearField(name)
    message.options.map_entry = is_entry
    for each in (*message.field, *message.oneof_decl, *message.extension_range):
        each.ClearField("options")
    for each in message.nested_type:
        _strip(each)
    for each in message.enum_type:
        _strip_enum(each)
    nested = sorted(message.nested_type, key=lambda each: each.options.map_entry)
    del message.nested_type[:]
    message.nested_type.extend(nested)


def _strip_enum(enum: EnumDescriptorProto) -> None:
    has_aliases = enum.options.allow_alias
    for name in ("options", "reserved_range", "reserved_name"):
        enum.ClearField(name)
    enum.options.allow_alias = has_aliases
    for each in enum.value:
        each.ClearField("options")
