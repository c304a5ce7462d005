"""Reads `keylane.toml`: its tables, or what is wrong with it, by line and field."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from keylane.errors import BadConfig, ask_meant
from keylane.formats.toml_lines import line_of
from keylane_spark.config.job import JobConfig
from keylane_spark.config.table import ConfigTable
from keylane_spark.config.topics import Config, TopicConfig
from keylane_spark.config.views import ViewConfig

SHOWN = 1_000
"""Characters of a value that is wrong."""
MOST_FAULTS = 100
"""Faults of a file that are named: each takes a look at its lines."""


class ConfigFault(NamedTuple):
    """What is wrong with a file. `where`: FILE:LINE, or FILE; `what`: FIELD: REASON, or the reason alone."""

    where: str
    what: str


class InvalidConfigFile(BadConfig):
    """The file can't be served, for these faults."""

    def __init__(self, faults: Sequence[ConfigFault]) -> None:
        super().__init__("\n".join(f"{each.where}: {each.what}" for each in faults))
        self.faults = tuple(faults)


def load(path: Path) -> Config:
    """Read and validate the file. Raises InvalidConfigFile, which names line and field of every fault."""
    try:
        return _load(path)
    except RecursionError as error:
        raise InvalidConfigFile([ConfigFault(str(path), "is nested too deeply")]) from error


def _load(path: Path) -> Config:
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows' editors write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfigFile([ConfigFault(str(path), f"can't be read: {error}")]) from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfigFile([ConfigFault(str(path), f"is not valid TOML: {error}")]) from error
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        raise InvalidConfigFile(_faults(path, text, error.errors())) from error
    refused = [_fault_of(path, text, field, reason) for field, reason in config.refusals_of_views()]
    if refused:
        raise InvalidConfigFile(refused)
    return config


def _faults(path: Path, text: str, errors: Sequence[Any]) -> list[ConfigFault]:
    faults = [_fault(path, text, each) for each in errors[:MOST_FAULTS]]
    if more := len(errors) - len(faults):
        faults.append(ConfigFault(str(path), f"and {more:,} more faults"))
    return faults


def _fault_of(path: Path, text: str, field: list[str], what: str) -> ConfigFault:
    return ConfigFault(f"{path}:{line_of(text, field)}", f"{'.'.join(field)}: {what}")


def _fault(path: Path, text: str, fault: Any) -> ConfigFault:
    field = [str(part) for part in fault["loc"] if part != "[key]"]
    given = "" if fault["type"] == "missing" else f", not {repr(fault['input'])[:SHOWN]}"
    reason = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        reason, given = f"there is no such field{_nearest(field)}", ""
    return _fault_of(path, text, field, f"{reason}{given}")


def _nearest(field: list[str]) -> str:
    """Return the question after the field that was meant, "" where none is near."""
    tables: dict[str, type[ConfigTable]] = {"job": JobConfig, "topics": TopicConfig, "views": ViewConfig}
    table = Config if len(field) == 1 else tables.get(field[0])
    return ask_meant(field[-1], table.model_fields if table else ())
