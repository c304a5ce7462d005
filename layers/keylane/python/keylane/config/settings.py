"""Types of settings: each reads one variable of the environment, and names it where its value is wrong.

The settings themselves are in `table` and `kafka_table`; docs/configuration/settings.md is made from those.
"""

import re
from collections.abc import Mapping
from typing import Any

from keylane.errors import SettingsError
from keylane.formats import json_text

REQUIRED = "must be set"
FILE = "file:"
"""Before the path of a file that has a setting's value."""
_LONGEST_INTEGER = 18
"""Digits. No bound has more, and parsing takes time by the square of their number."""


class Setting:
    """A variable that holds any text.

    `parts`: what reads it. `default`: the value where it is unset or empty; REQUIRED for none. `shown`: the
    default in the document, where that depends on other settings. Spaces around a value are dropped.
    """

    accepts = "text"

    def __init__(
        self, name: str, text: str, default: Any = None, *, parts: str = "", shown: str = ""
    ) -> None:
        self.name = name
        self.parts = parts
        self.default = default
        self.text = text
        self.shown = shown

    def read(self, environment: Mapping[str, str]) -> Any:
        """Return the value, or the default. Raises SettingsError."""
        given = environment.get(self.name, "").strip()
        if given:
            return self._parse(given)
        if self.default is REQUIRED:
            raise self.fault(f"is not set: it takes {self.accepts}")
        return self.default

    def _parse(self, given: str) -> Any:
        """Return the value of a text that is not empty. Raises SettingsError."""
        return given

    def fault(self, fault: str) -> SettingsError:
        """Return the error that says what is wrong with this variable."""
        return SettingsError(self.name, fault)


class Raw(Setting):
    """Text with the spaces around it: a password may begin or end with one."""

    def read(self, environment: Mapping[str, str]) -> Any:
        """Return the text as it is, or the default."""
        return environment.get(self.name) or self.default


class Integer(Setting):
    """Digits, from the first of `bounds` to the second; None there for no upper bound."""

    def __init__(
        self,
        name: str,
        text: str,
        default: int | None = None,
        *,
        bounds: tuple[int, int | None] = (1, None),
        **more: str,
    ) -> None:
        super().__init__(name, text, default, **more)
        self.least, self.most = bounds
        self.accepts = f"an integer of {self.least} or more"
        if self.most is not None:
            self.accepts = f"an integer from {self.least} to {self.most}"

    def _parse(self, given: str) -> int:
        is_integer = given.isascii() and given.isdigit() and len(given) <= _LONGEST_INTEGER
        if is_integer and self.least <= int(given) and (self.most is None or int(given) <= self.most):
            return int(given)
        raise self.fault(f"is {given[:40]!r}: it must be {self.accepts}")


class Switch(Setting):
    """`true` or `false`, in upper or lower case."""

    accepts = "true or false"

    def _parse(self, given: str) -> bool:
        if given.lower() not in {"true", "false"}:
            raise self.fault(f"is {given[:40]!r}: it must be true or false")
        return given.lower() == "true"


class Choice(Setting):
    """One of `words`; upper and lower case are accepted, and the form in `words` is returned."""

    ignores_case = True

    def __init__(self, name: str, text: str, default: str, *, words: tuple[str, ...], **more: str) -> None:
        super().__init__(name, text, default, **more)
        self.words = words
        self.accepts = f"one of {', '.join(words)}"

    def _parse(self, given: str) -> str:
        for word in self.words:
            if given == word or (self.ignores_case and given.lower() == word.lower()):
                return word
        raise self.fault(f"is {given[:40]!r}: it must be {self.accepts}")


class ExactChoice(Choice):
    """One of the words, as they are."""

    ignores_case = False


class Pattern(Setting):
    """Text of a form; it is never shown, for a URL with a password in it is a likely mistake."""

    def __init__(
        self, name: str, text: str, default: Any = None, *, form: tuple[str, str], **more: str
    ) -> None:
        super().__init__(name, text, default, **more)
        self.accepts, self.pattern = form

    def _parse(self, given: str) -> str:
        if not re.fullmatch(self.pattern, given):
            raise self.fault(f"is not {self.accepts}")
        return given


class JsonObject(Setting):
    """A JSON object, empty by default; `example` is one."""

    def __init__(self, name: str, text: str, example: str, default: Any = None, **more: str) -> None:
        super().__init__(name, text, default, **more)
        self.example = example
        self.accepts = f"a JSON object like {example}"

    def read(self, environment: Mapping[str, str]) -> dict[str, Any]:
        """Return the object, or the default. Raises SettingsError."""
        return super().read(environment) or {}

    def _parse(self, given: str) -> dict[str, Any]:
        try:
            found = json_text.parse(given.encode())
        except ValueError as error:
            # Without the error itself, which holds the text: there may be a secret in it.
            raise self.fault(json_text.why_not_json(error)) from None
        if not isinstance(found, dict):
            raise self.fault(f"is not {self.accepts}")
        return found


class JsonOrFile(Setting):
    """The text of a JSON object, or FILE and the path of one: who reads it parses it."""

    def __init__(self, name: str, text: str, example: str, default: Any = None, **more: str) -> None:
        super().__init__(name, text, default, **more)
        self.example = example
        self.accepts = f"a JSON object like {example}, or {FILE}PATH of a JSON or TOML file"


class Addresses(Setting):
    """A list like `host:port,[::1]:port`; read as pairs of host and port."""

    accepts = "addresses: host:port,host:port"

    def _parse(self, given: str) -> list[tuple[str, int]]:
        found = []
        for number, item in enumerate(given.split(","), start=1):
            host, _, port = item.strip().rpartition(":")
            # The item isn't shown: a URL with a password in it is a likely mistake.
            if not host or set(host) & set("/@ ") or not _is_port(port):
                raise self.fault(f"has an item (number {number}) that is not host:port")
            found.append((host.removeprefix("[").removesuffix("]"), int(port)))
        return found


def _is_port(given: str) -> bool:
    return given.isascii() and given.isdigit() and 0 < int(given[:6]) < 1 << 16


class SettingsTable(dict[str, Setting]):
    """Settings by their variables' names. `parts`: what reads those that do not say it themselves."""

    def __init__(self, *settings: Setting, parts: str = "") -> None:
        for each in settings:
            each.parts = each.parts or parts
        super().__init__((each.name, each) for each in settings)

    def read(self, environment: Mapping[str, str], name: str) -> Any:
        """Return the value of one setting. Raises SettingsError."""
        return self[name].read(environment)

    def fields(self, environment: Mapping[str, str], *prefixes: str) -> dict[str, Any]:
        """Return all values by the rest of their names, in lower case. Raises SettingsError.

        The prefixes are taken off one after the other, where a name has them.
        """
        found = {}
        for name, setting in self.items():
            field = name
            for prefix in prefixes:
                field = field.removeprefix(prefix)
            found[field.lower()] = setting.read(environment)
        return found


def is_set(environment: Mapping[str, str], name: str) -> bool:
    """Return whether the variable holds more than spaces."""
    return bool(environment.get(name, "").strip())
