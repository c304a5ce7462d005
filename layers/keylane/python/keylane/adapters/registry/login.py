"""How to log in to the Schema Registry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from keylane.adapters.rotated_login import LoginSettings

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class RegistrySettings(LoginSettings):
    """How to reach the registry. `url`: http or https, with the path of its API.

    `renewed` reads the settings again; it is called where the registry rejects the credentials.
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    renewed: Callable[[], RegistrySettings] | None = field(default=None, repr=False, compare=False)
