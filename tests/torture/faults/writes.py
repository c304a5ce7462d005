"""Faults of writes: lost acknowledgements, rotated passwords, refused records, frozen and killed hosts."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import psutil
from tests.torture.faults.broker import kill_broker
from tests.torture.faults.world import stopped
from tests.torture.hosts import TIMEOUT_MS
from tests.torture.links import Mode
from tests.torture.passwords import new_password
from tests.torture.stack import wait_until

if TYPE_CHECKING:
    from tests.torture.faults.world import World
    from tests.torture.hosts import FunctionHost
    from tests.torture.schedule import Event

_BUSY_WITHIN_S = 60
_CUT_S = 0.1


def lose_acks(world: World, event: Event) -> None:
    """Keep the brokers' answers from functions and server, then cut them off; at times kill a broker."""
    listeners = world.stack.kafka.writers_listeners()
    with contextlib.ExitStack() as held:
        for listener in listeners:
            held.enter_context(listener.set(Mode.HOLD_REPLIES))
        time.sleep(event.seconds * 5)
        for listener in listeners:
            held.enter_context(listener.set(Mode.CUT))
        if event.variant:
            kill_broker(world, event)
        time.sleep(_CUT_S)


def rotate_password(world: World, event: Event) -> None:
    """Change the writers' password, in the brokers or in the secret store first, and end all connections.

    At times the brokers' last answers are kept from the writers: what those say was written then.
    """
    password, listeners = world.stack.hosts.password, world.stack.kafka.writers_listeners()
    changes = [password.change_in_kafka, password.change_in_store]
    first, second = reversed(changes) if event.variant else changes
    new = new_password()
    with contextlib.ExitStack() as held:
        for listener in listeners if event.choice % 2 else ():
            held.enter_context(listener.set(Mode.HOLD_REPLIES))
        time.sleep(event.seconds)
        first(new)
        for listener in listeners:
            held.enter_context(listener.set(Mode.CUT))
        time.sleep(_CUT_S)
    time.sleep(event.seconds)
    second(new)
    # Whoever connected between the two changes has the former password still.
    with contextlib.ExitStack() as held:
        for listener in listeners:
            held.enter_context(listener.set(Mode.CUT))
        time.sleep(_CUT_S)


def refuse_record(world: World, event: Event) -> None:
    """Let each client send a record among others that Kafka refuses: too far ahead in time, or too large."""
    for number, client in enumerate(world.writers.clients):
        client.spoil(is_large=(event.choice + number) % 2 == 0)
    wait_until(
        lambda: not any(client.is_spoiling for client in world.writers.clients),
        _BUSY_WITHIN_S,
        "every client has sent a record that Kafka refuses",
    )


def kill_drain(world: World, event: Event) -> None:
    """End the drain while it writes a batch, or once it has answered, before its messages are deleted."""
    drain = world.writers.drain
    if event.variant:
        drain.is_forgetting.set()
        wait_until(lambda: not drain.is_forgetting.is_set(), _BUSY_WITHIN_S, "the drain has a batch")
        return
    process = _busy(world.stack.hosts.drain)
    time.sleep(event.seconds / 20)
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def freeze_function(world: World, event: Event) -> None:
    """Stop the produce function, or the drain, while it writes, until its time is over."""
    hosts = world.stack.hosts
    process = _busy(hosts.drain if event.variant else hosts.produce)
    with stopped([process]):
        time.sleep(TIMEOUT_MS / 1000 + event.seconds)


def _busy(host: FunctionHost) -> psutil.Process:
    """The process of a function, once it has a request."""
    assert host.is_busy.wait(_BUSY_WITHIN_S), f"{host.process.function.name} has no request"
    pid = host.process.pid
    assert pid is not None, f"{host.process.function.name} has ended"
    return psutil.Process(pid)
