"""A login of the Schema Registry that is rotated while functions use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.servers.registry_double import TIMEOUT_MS, RegistryDouble, client_of
from tests.support.fakes import FakeTime

from keylane.adapters.registry.circuit import Circuit
from keylane.adapters.registry.client import RegistryClient
from keylane.adapters.registry.login import RegistrySettings
from keylane.adapters.rotated_login import RENEWAL_PAUSE_S
from keylane.errors import RegistryUnavailable, SettingsUnavailable
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator

USER, OLD, NEW = "reader", "hunter2", "hunter3"
SCHEMA = {"schema": '"int"'}


class Store:
    """The secret store: what it has, and how often it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.password = OLD
        self.reads = 0
        self.is_away = False

    def settings(self) -> RegistrySettings:
        return RegistrySettings(self.url, USER, self.password, renewed=self.read)

    def read(self) -> RegistrySettings:
        self.reads += 1
        if self.is_away:
            raise SettingsUnavailable("secretsmanager does not answer")
        return RegistrySettings(self.url, USER, self.password)


@pytest.fixture
def served() -> Iterator[RegistryDouble]:
    with RegistryDouble() as double:
        double.login = USER, OLD
        double.has("/schemas/ids/7", SCHEMA)
        yield double


@pytest.fixture
def store(served: RegistryDouble) -> Store:
    return Store(served.url)


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


def asked(client: RegistryClient, time: FakeTime) -> str:
    return client.schema(7, Deadline.after_ms(20_000, time.clock)).text


def test_a_rotated_password_is_taken_from_the_store_and_the_request_goes_on(served, store, time, caplog):
    client = RegistryClient(store.settings(), Circuit(TIMEOUT_MS))
    assert asked(client, time) == '"int"'
    served.login, store.password = (USER, NEW), NEW
    assert asked(client, time) == '"int"'
    assert asked(client, time) == '"int"'
    # The third request begins with the new password.
    assert (len(served.asked), store.reads) == (4, 1)
    assert not {OLD, NEW} & set(caplog.text.split())


def test_the_former_password_is_offered_while_the_registry_has_not_changed_it(served, store, time):
    client = RegistryClient(store.settings(), Circuit(TIMEOUT_MS))
    served.login, store.password = (USER, NEW), NEW
    assert asked(client, time) == '"int"'
    served.login = USER, OLD
    assert asked(client, time) == '"int"'


def test_the_store_is_not_asked_at_each_request_while_nothing_is_accepted(served, store, time):
    client = RegistryClient(store.settings(), Circuit(TIMEOUT_MS))
    served.login = USER, NEW
    for reads in (1, 1, 2):
        with pytest.raises(RegistryUnavailable, match="status 401"):
            asked(client, time)
        assert store.reads == reads
        time.move(RENEWAL_PAUSE_S / 2 + 0.1)


def test_a_store_that_is_away_leaves_the_registrys_own_answer(served, store, time, caplog):
    client = RegistryClient(store.settings(), Circuit(TIMEOUT_MS))
    served.login, store.is_away = (USER, NEW), True
    with pytest.raises(RegistryUnavailable, match="status 401"):
        asked(client, time)
    assert "can't be read again" in caplog.text


def test_a_password_that_is_no_reference_is_not_read_again(served, time):
    client = client_of(served.url, username=USER, password="wrong")
    with pytest.raises(RegistryUnavailable, match="status 401"):
        asked(client, time)
    assert len(served.asked) == 1
