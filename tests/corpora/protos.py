"""All .proto files of Google's APIs: each descriptor as protoc makes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from tests.corpora.fetch import PROTO_FILES, PROTOC, folder_of

from keylane.adapters.registry import proto_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto


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


AT_ONCE = 500
PROGRAM = """
import sys
from grpc_tools import _protoc_compiler
sys.exit(_protoc_compiler.run_main([each.encode() for each in sys.argv]))
"""


def compare() -> tuple[int, dict[str, str]]:
    """Return how many files there are, and what differs, by file."""
    root = folder_of(PROTO_FILES) / "package"
    names = sorted(str(path.relative_to(root)) for path in root.glob("google/**/*.proto"))
    theirs = _of_protoc(root, names)
    differing: dict[str, str] = {name: "protoc refuses it" for name in names if name not in theirs}
    ours: dict[str, FileDescriptorProto] = {}
    for name in theirs:
        if (file := _file(root, name)) is not None:
            try:
                ours[name] = proto_parser.parse(file, name)
            except ValueError as error:
                differing[name] = f"ours: {error}"[:200]
    found, expected = _pooled(theirs | ours, theirs, differing), _pooled(theirs, theirs, {})
    for name in ours:
        if name in found and found[name] != expected[name]:
            differing[name] = _first_difference(found[name], expected[name])
    return len(names), differing


def _file(root: Path, name: str) -> str | None:
    path = root / name
    return path.read_text(encoding="utf-8") if path.exists() else None


def _of_protoc(root: Path, names: list[str]) -> dict[str, FileDescriptorProto]:
    """Return what protoc makes of each, of its imports too; each after its imports."""
    found: dict[str, FileDescriptorProto] = {}
    tools = folder_of(PROTOC)
    for at in range(0, len(names), AT_ONCE):
        for proto in _described(root, tools, names[at : at + AT_ONCE]):
            found.setdefault(proto.name, proto)
    return found


def _described(root: Path, tools: Path, names: list[str]) -> Iterator[FileDescriptorProto]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptors"
        given = [f"-I{root}", f"-I{tools / 'grpc_tools' / '_proto'}", f"--descriptor_set_out={out}"]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *given, "--include_imports", *names],
            env={**os.environ, "PYTHONPATH": str(tools)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            yield from FileDescriptorSet.FromString(out.read_bytes()).file
        elif len(names) > 1:  # one of them is at fault
            half = len(names) // 2
            yield from _described(root, tools, names[:half])
            yield from _described(root, tools, names[half:])


def _pooled(
    files: dict[str, FileDescriptorProto], spare: dict[str, FileDescriptorProto], faults: dict[str, str]
) -> dict[str, FileDescriptorProto]:
    """Return the files as a pool has them, with all names resolved; `spare`: for those that it refuses."""
    pool, found = descriptor_pool.DescriptorPool(), dict[str, FileDescriptorProto]()
    for name, file in files.items():
        own = pool
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError:
            # Two files of the corpus may have the same names: then it needs a pool of its own.
            try:
                own = _pool_of(file, spare)
            except TypeError as error:
                faults[name] = f"no descriptor: {error}"[:200]
                own = _pool_of(spare[name], spare)
        found[name] = FileDescriptorProto()
        own.FindFileByName(name).CopyToProto(found[name])
        _drop_default_names(without_skipped(found[name]))
    return found


def _drop_default_names(parent: Any) -> None:
    """Drop the names in JSON that follow from a field's: protoc writes them out."""
    messages = parent.message_type if isinstance(parent, FileDescriptorProto) else parent.nested_type
    for field in (*(() if isinstance(parent, FileDescriptorProto) else parent.field), *parent.extension):
        if field.json_name == re.sub(r"_(.?)", lambda found: found[1].upper(), field.name):
            field.ClearField("json_name")
    for each in messages:
        _drop_default_names(each)


def _pool_of(
    file: FileDescriptorProto, others: dict[str, FileDescriptorProto]
) -> descriptor_pool.DescriptorPool:
    """Return a pool with a file, and what it imports of the others."""
    pool, added = descriptor_pool.DescriptorPool(), set[str]()

    def add(each: FileDescriptorProto) -> None:
        if each.name not in added:
            added.add(each.name)
            for name in each.dependency:
                add(others[name])
            pool.AddSerializedFile(each.SerializeToString())

    add(file)
    return pool


def _first_difference(ours: FileDescriptorProto, theirs: FileDescriptorProto) -> str:
    pairs = zip(str(ours).splitlines(), str(theirs).splitlines(), strict=False)
    first = next((f"{one.strip()} is {other.strip()} by protoc" for one, other in pairs if one != other), "")
    return (first or "one has more than the other")[:200]
