"""A read of a key looks the layout up once, and has one deadline for all that it asks of the state."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from tests.support.builders import a_lane, a_layout
from tests.support.fakes import FakeState, FakeTime

from keylane.api.http.request import Request
from keylane.api.http.router import Application
from keylane.app.query import OPERATIONS
from keylane.config.api import ApiSettings
from keylane.config.functions import QuerySettings
from keylane.metrics.meter import NO_METER
from keylane.model.records import Options
from keylane.ports import Deadline
from keylane.query.layouts import Layouts
from keylane.query.store import Store, begin_reading
from keylane.state import redis_keys
from keylane.wiring.query import QueryParts

TIMEOUT_MS = 1_000


def read_key(state: FakeState, path: str, query: dict[str, list[str]]) -> Any:
    """Read a key by the application; layouts are kept for no time at all."""
    clock = FakeTime().clock
    store = Store(state, Layouts(state, clock, 0), clock)
    settings = QuerySettings.from_environment({"KEYLANE_REDIS_NODES": "h:1"})
    unused: Any = None
    parts = QueryParts(settings, store, unused, unused, unused, unused)
    application = Application(OPERATIONS, lambda: parts, ApiSettings, meter=NO_METER, clock=clock)
    return application.respond(Request("GET", path, query, {}))


@pytest.mark.parametrize(
    ("options", "stored", "asked", "query"),
    [
        pytest.param(Options(), b"7", "7", {}, id="a key as it is"),
        pytest.param(Options(), b"7", "Nw==", {"key_format": ["base64"]}, id="a key in base64"),
        pytest.param(Options(key_fields=(("id", "integer"),)), b'{"id":7}', "7", {}, id="a typed key"),
    ],
)
def test_the_layout_is_looked_up_once(
    options: Options, stored: bytes, asked: str, query: dict[str, list[str]]
):
    layout = a_layout(options=options)
    state = FakeState(a_lane(layout, stored, b"1"))
    response = read_key(state, f"/topics/{layout.topic}/keys/{asked}", query)
    assert (response.status_code, response.body) == (200, "1")
    assert state.reads.count([redis_keys.layout_key(layout.topic, redis_keys.RECORD_TAG)]) == 1
    assert len(state.reads) == 2


def test_what_a_read_waits_for_another_service_is_no_wait_for_the_state():
    layout, time = a_layout(), FakeTime()
    state = FakeState(a_lane(layout, b"k", b"1"))
    store = Store(state, Layouts(state, time.clock, 10), time.clock)
    reading = begin_reading(store, layout.topic, Deadline.after_ms(TIMEOUT_MS, time.clock))
    time.move(0.4)
    with reading.paused():
        time.move(5)
    assert reading.deadline.remaining_s == pytest.approx(0.6)
    with suppress(ValueError), reading.paused():
        time.move(5)
        raise ValueError
    assert reading.deadline.remaining_s == pytest.approx(0.6)
    assert reading.again(TIMEOUT_MS).deadline.remaining_s == pytest.approx(1)
