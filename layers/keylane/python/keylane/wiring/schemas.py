"""Opens the Schema Registry: for readers of its values and keys, and for writers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from keylane.config.functions import renewable_registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.ports import Schemas, SchemaWriter


def make_schemas(environment: Mapping[str, str], known: dict[str, Any]) -> Schemas:
    """Open it for readers. `known`: see `RegistryDecoders`. Raises SettingsError, SettingsUnavailable."""
    from keylane.adapters.registry.client import RegistryClient  # noqa: PLC0415 (most functions need neither)
    from keylane.adapters.registry.decoders import RegistryDecoders  # noqa: PLC0415

    return RegistryDecoders(RegistryClient(renewable_registry(environment)), known)


def make_schema_writer(environment: Mapping[str, str]) -> SchemaWriter:
    """Open it for writers. Raises SettingsError, SettingsUnavailable."""
    from keylane.adapters.registry.client import RegistryClient  # noqa: PLC0415
    from keylane.adapters.registry.encoders import RegistryEncoders  # noqa: PLC0415

    return RegistryEncoders(RegistryClient(renewable_registry(environment)))


class SchemasOfThread(threading.local):
    """Opens it for readers, once in each thread: a client has one connection."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._opened: Schemas | None = None

    def __call__(self) -> Schemas:
        """Return what this thread has opened. Raises as `make_schemas`."""
        if self._opened is None:
            self._opened = make_schemas(self._environment, {})
        return self._opened
