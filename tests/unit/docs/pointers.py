"""Names that documents and comments point to: modules, identifiers, settings, options of keylane.toml."""

from __future__ import annotations

import re
import tokenize
from functools import cache
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from tests.support.project_files import ROOT, project_files

from keylane_spark.config.job import JobConfig
from keylane_spark.config.table import OneOf
from keylane_spark.config.topics import TopicConfig
from keylane_spark.config.views import ViewConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = {
    "keylane": "layers/keylane/python",
    "keylane_spark": "spark",
    "keylane_server": "server",
    "keylane_client": "clients/python",
    "keylane_cli": "cli",
    "keylane_local": "local",
    "keylane_build": "tools",
}
"""By their names the folders that they are in."""
PRODUCT = (*PACKAGES.values(), "functions", "layers")
FOREIGN = frozenset(
    {
        *("NewHashPartitioner", "NewReferenceHashPartitioner"),  # Sarama's
        *("rd_kafka_dr_implicit_ack", "rd_kafka_handle_Produce"),  # librdkafka's
        "KafkaTCPTransport._sock",  # kafka-python's
        "FileSystem.SHUTDOWN_HOOK_PRIORITY",  # Hadoop's
        "sqlalchemy.util.concurrency",
        "iter_errors",  # jsonschema's
        *("try_", "entrypoint.sh", "spark.sql.streaming.pollingDelay"),  # Spark's
        "JsonConverter",  # Kafka Connect's
        *("BuiltInPartitioner.partitionForKey", "org.apache.kafka.common.utils.Utils.murmur2"),  # Kafka's
        "consistent",  # a partitioner of librdkafka
        "customer.country",  # an example
        "unevaluated...",  # of keywords of JSON Schema
        *("GENERATION.PARTITIONER", "GENERATION.name", "GENERATION.strays"),  # of keys in Redis
    }
)
"""Names in code style that are not ours."""
_WORDS = re.compile(r"[A-Za-z_]\w*")
_SPAN = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)`(?!`)")
_MODULE = re.compile(rf"(?<![\w./-])({'|'.join(PACKAGES)})((?:\.[A-Za-z_]\w*)+)")
_SETTING = re.compile(r"\bKEYLANE_[A-Z0-9_]*[A-Z0-9]\b(?!_?\*|_[A-Z.]*\.)")
_OPTION = re.compile(r'(?<![\w.-])([a-z_]+) = ("[^"]*"|true|false|\d+)')
_CODE = (".lua", ".toml", ".yaml", ".yml", ".js", ".java", ".xml", ".sh", ".json", "Makefile", "Dockerfile")


@cache
def _tokens(path: Path) -> tuple[tuple[tuple[int, str], ...], frozenset[str]]:
    """A file's comments and docstrings, by their quotes, with their lines; and the words of its code."""
    found: list[tuple[int, str]] = []
    words: set[str] = set()
    with path.open(encoding="utf-8") as source:
        for token in tokenize.generate_tokens(source.readline):
            is_docstring = token.type == tokenize.STRING and '"""' in token.string[:4]
            if token.type == tokenize.COMMENT or is_docstring:
                found.append((token.start[0], token.string))
            elif token.type == tokenize.NAME:
                words.add(token.string)
            elif token.type == tokenize.STRING:
                words.update(_WORDS.findall(token.string))
    return tuple(found), frozenset(words)


def comments(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and text of each comment of a file, and of each docstring."""
    return _tokens(path)[0]


def _files(without: str) -> Iterator[Path]:
    """The project's files but for those of a folder: tests name what is not there, too."""
    yield from (path for path in project_files("") if not path.is_relative_to(ROOT / without))


@cache
def known_words() -> frozenset[str]:
    """All that code names: identifiers, words of its strings, and names of files and folders."""
    words: set[str] = set()
    for path in _files("tests"):
        words.update(re.split(r"[./]", str(path.relative_to(ROOT))))
        if path.name.endswith(_CODE) and path.name != "openapi.json":
            words.update(_WORDS.findall(path.read_text(encoding="utf-8", errors="replace")))
        elif path.suffix == ".py":
            words.update(_tokens(path)[1])
    return frozenset(words)


def unknown_names(text: str) -> list[str]:
    """Return the names in code style of which no code knows a part."""
    found = [name for name in _SPAN.findall(text) if name not in FOREIGN]
    return [name for name in found if not known_words().issuperset(filter(None, name.split(".")))]


def unknown_modules(text: str) -> list[str]:
    """Return the dotted names of our packages that lead to nothing.

    The client's commands and loggers are called `keylane.NAME`, too: of `keylane` only what is below one of
    its folders is looked at.
    """
    found = [(package, rest.strip(".").split(".")) for package, rest in _MODULE.findall(text)]
    return [
        ".".join((package, *parts))
        for package, parts in found
        if (package != "keylane" or _is_package(_folder(package) / parts[0])) and not _leads(package, parts)
    ]


def _folder(package: str) -> Path:
    return ROOT / PACKAGES[package] / package


def _is_package(folder: Path) -> bool:
    """Whether it is one, and not what an earlier version has left: its compiled modules."""
    return (folder / "__init__.py").exists()


def _leads(package: str, parts: list[str]) -> bool:
    at = _folder(package)
    for index, part in enumerate(parts):
        module = at / f"{part}.py"
        if module.exists():
            after = parts[index + 1 : index + 2]
            return not after or re.search(rf"\b{after[0]}\b", module.read_text(encoding="utf-8")) is not None
        if not _is_package(at / part):
            return re.search(rf"\b{part}\b", (at / "__init__.py").read_text(encoding="utf-8")) is not None
        at /= part
    return True


@cache
def settings_of_code() -> frozenset[str]:
    """All variables that code, templates, tests and benchmarks name."""
    named: set[str] = set()
    for path in _files("tests/unit/docs"):
        if path.suffix == ".py" or path.name.endswith(_CODE):
            named.update(_SETTING.findall(path.read_text(encoding="utf-8", errors="replace")))
    return frozenset(named)


def unknown_settings(text: str) -> list[str]:
    """Return the variables that nothing reads."""
    return [name for name in _SETTING.findall(text) if name not in settings_of_code()]


@cache
def choices_of_options() -> dict[str, set[str]]:
    """The choices of the options of keylane.toml that have some."""
    found: dict[str, set[str]] = {}
    for table in (JobConfig, TopicConfig, ViewConfig):
        for name, option in table.model_fields.items():
            choices = {each for kind in (option.annotation, *option.metadata) for each in _choices(kind)}
            if choices:
                found.setdefault(name, set()).update(choices)
    return found


def _choices(kind: Any) -> list[str]:
    if isinstance(kind, OneOf):
        return kind.choices
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if get_origin(kind) in {Union, UnionType}:
        return [each for inner in get_args(kind) for each in _choices(inner)]
    return []


def unknown_choices(text: str) -> list[str]:
    """Return the options of keylane.toml with a value that they do not take, as in `reader = "tasks"`."""
    return [
        f"{name} = {value}"
        for name, value in _OPTION.findall(text)
        if name in choices_of_options() and value.strip('"') not in choices_of_options()[name]
    ]
