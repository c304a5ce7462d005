"""Opens the Schema Registry: for readers of its values and keys, and for writers."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from keylane.config.functions import renewable_registry
from keylane.errors import RegistryUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.ports import Schemas, SchemaWriter
    from keylane.wiring.runtime import Runtime


def reading_schemas(runtime: Runtime, environment: Mapping[str, str]) -> Callable[[], Schemas]:
    """Return what opens it for readers, once. Raises SettingsError, SettingsUnavailable when it does."""
    make = partial(_make_schemas, environment, {})
    return cache(partial(runtime.open_port, make, busy=RegistryUnavailable))


def _make_schemas(environment: Mapping[str, str], known: dict[str, Any]) -> Schemas:
    from keylane.adapters.registry.client import RegistryClient  # noqa: PLC0415 (most functions need neither)
    from keylane.adapters.registry.decoders import RegistryDecoders  # noqa: PLC0415

    return RegistryDecoders(RegistryClient(renewable_registry(environment)), known)


def make_schema_writer(environment: Mapping[str, str]) -> SchemaWriter:
    """Open it for writers. Raises SettingsError, SettingsUnavailable."""
    from keylane.adapters.registry.client import RegistryClient  # noqa: PLC0415
    from keylane.adapters.registry.encoders import RegistryEncoders  # noqa: PLC0415

    return RegistryEncoders(RegistryClient(renewable_registry(environment)))
