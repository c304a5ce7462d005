"""How to log in to the Schema Registry."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from keylane.adapters.rotated_login import LoginSettings


@dataclass(frozen=True, slots=True)
class RegistrySettings(LoginSettings):
    """How to reach the registry. `url`: http or https, with the path of its API.

    `renewed` reads the settings again; it is called where the registry rejects the credentials.
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    renewed: Callable[[], Self] | None = field(default=None, repr=False, compare=False)
