"""Variables of the environment as values: each is checked, and a fault names its variable."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from keylane.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def text(environment: Mapping[str, str], variable: str, default: str = "") -> str:
    """What the variable says, without spaces around it."""
    return environment.get(variable, "").strip() or default


def number(
    environment: Mapping[str, str], variable: str, default: int, least: int = 1, most: int | None = None
) -> int:
    """A whole number from `least` to `most`."""
    given = text(environment, variable)
    if not given:
        return default
    bound = f"of {least} or more" if most is None else f"from {least} to {most}"
    # More digits than any bound has are never made a number: that takes time by their square.
    if not (given.isascii() and given.isdigit()) or len(given) > 18:  # noqa: PLR2004
        raise SettingsError(variable, f"is {given[:40]!r}, not a whole number {bound}")
    if int(given) < least or (most is not None and int(given) > most):
        raise SettingsError(variable, f"is {given!r}, not a whole number {bound}")
    return int(given)


def switch(environment: Mapping[str, str], variable: str, *, default: bool = False) -> bool:
    """`true` or `false`."""
    given = text(environment, variable).lower()
    if given not in {"", "true", "false"}:
        raise SettingsError(variable, f"is {given[:40]!r}, neither true nor false")
    return given == "true" if given else default


def choice(environment: Mapping[str, str], variable: str, choices: Iterable[str], default: str) -> str:
    """One of the words, upper or lower case; given as `choices` has it."""
    words = {word.lower(): word for word in choices}
    given = text(environment, variable, default)
    if given.lower() not in words:
        raise SettingsError(variable, f"is {given[:40]!r}, none of {', '.join(words.values())}")
    return words[given.lower()]


def json_object(environment: Mapping[str, str], variable: str, example: str) -> dict[str, Any]:
    """A JSON object, empty where the variable is; `example` shows one in the fault."""
    try:
        given = json.loads(text(environment, variable, "{}"))
    except json.JSONDecodeError as error:
        # Without the error itself, which holds the text: there may be a secret in it.
        raise SettingsError(variable, f"is no JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(variable, f"is no JSON: {type(error).__name__}") from None
    if not isinstance(given, dict):
        raise SettingsError(variable, f"is no JSON object like {example}")
    return given


def nodes(environment: Mapping[str, str], variable: str) -> list[tuple[str, int]]:
    """Addresses of a list like "host:port,[::1]:port"."""
    given = text(environment, variable)
    if not given:
        raise SettingsError(variable, 'is not set: it lists "host:port" of servers, divided by commas')
    found = []
    for place, item in enumerate(given.split(","), start=1):
        host, _, port = item.strip().rpartition(":")
        # The item isn't shown: a URL with a password in it is a likely mistake.
        if not host or set(host) & set("/@ ") or not _is_port(port):
            raise SettingsError(variable, f'has as item {place} something that is not "host:port"')
        found.append((host.removeprefix("[").removesuffix("]"), int(port)))
    return found


def _is_port(given: str) -> bool:
    return given.isascii() and given.isdigit() and 0 < int(given[:6]) < 1 << 16
