"""What `keylane check` finds in the files alone."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

from keylane.adapters.aws import references
from keylane.config import kafka_table, table
from keylane.config.access import VARIABLE as ACCESS
from keylane.config.access import read_policy
from keylane.config.settings import SettingsTable
from keylane.errors import BadConfig, SettingsError, SettingsUnavailable, WriterError, ask_meant
from keylane.formats.toml_lines import line_of
from keylane.model.records import MAX_LANES
from keylane_local import env_file
from keylane_spark.config.config_file import InvalidConfigFile, load
from keylane_spark.config.topics import Config
from keylane_spark.preview import read_code, sql_faults

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PREFIX = "KEYLANE_"
_OF_TOOLS = {"KEYLANE_TOOLS", "KEYLANE_DATA", "KEYLANE_URL"}


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """What is `wrong`, a `warning`, or a `note`; `where`: FILE:LINE, a topic or a view."""

    kind: Literal["wrong", "warning", "note"]
    where: str
    what: str


@dataclass(frozen=True, slots=True)
class ValidConfig:
    """A file that can be served, and its text."""

    path: Path
    text: str
    config: Config

    def place(self, *field: str) -> str:
        """Return FILE:LINE of a field, or of its table."""
        return f"{self.path}:{line_of(self.text, list(field))}"


def check_file(path: Path) -> tuple[list[CheckFinding], ValidConfig | None]:
    """Return what is wrong with a keylane.toml, and the file itself if the job would take it."""
    try:
        config = load(path)
    except InvalidConfigFile as error:
        return [CheckFinding("wrong", where, what) for where, what in error.faults], None
    valid = ValidConfig(path, path.read_text(encoding="utf-8-sig"), config)
    return list(_check_topics(valid)), valid


def _check_topics(valid: ValidConfig) -> Iterator[CheckFinding]:
    for name, topic in valid.config.topics.items():
        lanes = (topic.partitions or 1) * topic.stripes
        if lanes > MAX_LANES:
            what = f"partitions x stripes is {lanes}: a topic has at most {MAX_LANES} lanes"
            yield CheckFinding("wrong", valid.place("topics", name, "stripes"), what)
        if topic.transform and (fault := _function_fault(valid.path, topic.transform)):
            yield CheckFinding("wrong", valid.place("topics", name, "transform"), fault)
    for name, view in valid.config.views.items():
        near = get_close_matches(view.topic, sorted(valid.config.topics), 1)
        if view.topic not in valid.config.topics and near:
            what = f"topic {view.topic!r} has no table here: was {near[0]!r} meant? A view can do without one"
            yield CheckFinding("note", valid.place("views", name, "topic"), what)


def check_sql(valid: ValidConfig) -> Iterator[CheckFinding]:
    """Yield what Spark can't compute, such as a function that does not exist."""
    try:
        for field, reason in sql_faults(valid.config):
            yield CheckFinding("wrong", valid.place(*field), f"{'.'.join(field)}: {reason}")
    except WriterError as error:
        yield CheckFinding("warning", str(valid.path), f"the SQL was not looked at: {error}")


def _function_fault(config: Path, function: str) -> str:
    """Return why a transform's function can't be used, "" if it can: its module is imported."""
    folder = str(config.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        read_code(function)
    except BadConfig as error:
        return str(error)
    return ""


def check_settings(file: Path) -> list[CheckFinding]:
    """Return what is wrong with the variables of a keylane.env: unknown names, values out of bounds."""
    given = env_file.read(file)
    tables = [each for each in (vars(table) | vars(kafka_table)).values() if isinstance(each, SettingsTable)]
    known = {name: each for each in tables for name in each}
    found = []
    for name, value in given.items():
        if not name.startswith(PREFIX) or name in _OF_TOOLS:
            continue
        if name not in known:
            found.append(CheckFinding("wrong", str(file), f"{name} is no setting{ask_meant(name, known)}"))
            continue
        try:
            if value and name == ACCESS and not references.has_references({name: value}):
                read_policy(given)
            elif value:
                known[name].read(given, name)
        except (SettingsError, SettingsUnavailable) as error:
            found.append(CheckFinding("wrong", str(file), str(error)))
    return found
