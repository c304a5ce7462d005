"""Single variables of the environment, checked; the variable at fault is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Mapping


class SettingsError(BadConfig):
    """A variable is missing or wrong; `variable` names it. For logs: clients get another sentence."""

    def __init__(self, variable: str, fault: str) -> None:
        super().__init__(f"{variable} {fault}")
        self.variable = variable


def number(
    environment: Mapping[str, str], variable: str, default: int, least: int = 1, most: int | None = None
) -> int:
    """A whole number within bounds."""
    text = environment.get(variable, "").strip()
    if not text:
        return default
    is_whole = text.isascii() and text.isdigit()
    if not is_whole or int(text) < least or (most is not None and int(text) > most):
        bound = f"{least} or more" if most is None else f"{least} to {most}"
        raise SettingsError(variable, f"is {text!r}, not a whole number of {bound}")
    return int(text)


def switch(environment: Mapping[str, str], variable: str, *, default: bool = False) -> bool:
    """True or false."""
    text = environment.get(variable, "").strip().lower()
    if text not in {"", "true", "false"}:
        raise SettingsError(variable, f"is {text!r}, neither true nor false")
    return text == "true" if text else default
