"""Opens the Schema Registry: for readers of its values and keys, and for writers."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from keylane.config.functions import renewable_registry
from keylane.errors import RegistryUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.adapters.registry.circuit import Circuit
    from keylane.adapters.registry.client import RegistryClient
    from keylane.ports import Schemas, SchemaWriter
    from keylane.wiring.runtime import Runtime


def reading_schemas(
    runtime: Runtime, environment: Mapping[str, str], timeout_ms: float
) -> Callable[[], Schemas]:
    """Return what opens it for readers, once. Raises SettingsError, SettingsUnavailable when it does."""
    return cache(partial(_open_readers, runtime, environment, open_circuit(timeout_ms)))


def _open_readers(
    runtime: Runtime, environment: Mapping[str, str], circuit: Callable[[], Circuit]
) -> Schemas:
    from keylane.adapters.registry.compiled import CompiledSchemas  # noqa: PLC0415 (most functions need neither)
    from keylane.adapters.registry.decoders import RegistryDecoders  # noqa: PLC0415

    known, compiled = CompiledSchemas[Any](), CompiledSchemas[Any]()

    def make() -> Schemas:
        return RegistryDecoders(_open_client(environment, circuit), known, compiled)

    return runtime.open_port(make, busy=RegistryUnavailable)


def open_circuit(timeout_ms: float) -> Callable[[], Circuit]:
    """Return what makes the circuit of an application, once: all its clients and threads share it."""

    @cache
    def make() -> Circuit:
        from keylane.adapters.registry.circuit import Circuit  # noqa: PLC0415 (most functions need none)

        return Circuit(timeout_ms)

    return make


def writing_schemas(
    runtime: Runtime, environment: Mapping[str, str], circuit: Callable[[], Circuit]
) -> Callable[[], SchemaWriter]:
    """Return what opens it for writers, once. Raises SettingsError, SettingsUnavailable when it does."""
    return cache(partial(_open_writers, runtime, environment, circuit))


def _open_writers(
    runtime: Runtime, environment: Mapping[str, str], circuit: Callable[[], Circuit]
) -> SchemaWriter:
    from keylane.adapters.registry.compiled import CompiledSchemas  # noqa: PLC0415
    from keylane.adapters.registry.encoders import RegistryEncoders  # noqa: PLC0415

    compiled = CompiledSchemas[Any]()

    def make() -> SchemaWriter:
        return RegistryEncoders(_open_client(environment, circuit), compiled)

    return runtime.open_port(make, busy=RegistryUnavailable)


def _open_client(environment: Mapping[str, str], circuit: Callable[[], Circuit]) -> RegistryClient:
    from keylane.adapters.registry.client import RegistryClient  # noqa: PLC0415

    return RegistryClient(renewable_registry(environment), circuit())
