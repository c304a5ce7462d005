"""The encoders of a registry's schemas: of which subject, and how often the registry is asked."""

from __future__ import annotations

import pytest
from tests.servers.registry_double import RegistryDouble, client_of, serve_double

from keylane.adapters.registry.encoders import RegistryEncoders
from keylane.ports import Clock, Deadline, SchemaRefused


@pytest.fixture
def served():
    with serve_double() as double:
        double.has("/schemas/ids/7", {"schema": '"int"'})
        double.has("/schemas/ids/7/versions", [{"subject": "orders-value", "version": 1}])
        double.lacks("/schemas/ids/8")
        yield double


@pytest.fixture
def encoders(served: RegistryDouble) -> RegistryEncoders:
    return RegistryEncoders(client_of(served.url))


def deadline() -> Deadline:
    return Deadline.after_ms(20_000, Clock())


def test_a_schema_is_used_for_the_subject_that_has_it_and_for_no_other(
    encoders: RegistryEncoders, served: RegistryDouble
):
    for _ in range(2):
        found = encoders.encoder("orders-value", 7, deadline())
        assert (found.kind, found.schema_id, found.version, found.encode(3)) == ("AVRO", 7, 1, b"\x06")
    assert served.asked == ["/schemas/ids/7", "/schemas/ids/7/versions"]
    for subject in ("payments-value", "orders-key"):
        with pytest.raises(SchemaRefused, match=f"schema 7 is not a version of subject '{subject}'"):
            encoders.encoder(subject, 7, deadline())


def test_an_unknown_id_is_refused(encoders: RegistryEncoders):
    with pytest.raises(SchemaRefused, match="does not have schema 8"):
        encoders.encoder("orders-value", 8, deadline())
