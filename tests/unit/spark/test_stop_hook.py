"""The hook by which a JVM that ends stops the job first."""

from __future__ import annotations

import threading

import pytest

from keylane_spark.engine import stop_hook
from keylane_spark.engine.stop_hook import StopHook


class Manager:
    """Stands for Hadoop's `ShutdownHookManager`, with hooks by priority."""

    def __init__(self) -> None:
        self.hooks: dict[object, int] = {}

    def addShutdownHook(self, hook, priority, *_timeout) -> None:  # noqa: N802 (Java's name)
        self.hooks[hook] = priority

    def removeShutdownHook(self, hook) -> bool:  # noqa: N802 (Java's name)
        return self.hooks.pop(hook) > 0


class Package:
    """A package of Java: any name in it, and what is set."""

    def __init__(self, **names) -> None:
        self.__dict__.update(names)

    def __getattr__(self, name):
        return Package()


@pytest.fixture
def manager(monkeypatch):
    monkeypatch.setattr(stop_hook, "ensure_callback_server_started", lambda _: None)
    return Manager()


@pytest.fixture
def session(manager):
    util = Package(ShutdownHookManager=Package(get=lambda: manager))
    java = Package(
        java=Package(lang=Package(Thread=lambda hook: threading.Thread(target=hook.run))),
        org=Package(apache=Package(hadoop=Package(util=util))),
    )
    return Package(sparkContext=Package(_gateway=None, _jvm=java))


@pytest.fixture
def submitted(monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")


def test_a_jvm_that_ends_stops_the_job_before_spark_s_own_hook_and_waits_for_it(session, manager, submitted):
    stop, said = threading.Event(), []
    hook = StopHook(stop)
    hook.register(session)
    assert min(manager.hooks.values()) > 40

    def end() -> None:
        hook.run()
        said.append("the JVM goes on")

    jvm = threading.Thread(target=end)
    jvm.start()
    assert stop.wait(60)
    said.append("stopped")
    hook.job_ended()
    jvm.join(60)
    assert said == ["stopped", "the JVM goes on"]
    assert manager.hooks, "Hadoop refuses to remove a hook by then"


def test_a_job_that_ends_by_itself_leaves_no_hook(session, manager, submitted):
    hook = StopHook(threading.Event())
    hook.register(session)
    assert manager.hooks
    hook.job_ended()
    assert manager.hooks == {}


def test_without_spark_submit_the_signal_comes_here_and_the_jvm_has_no_hook(session, manager, monkeypatch):
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    hook = StopHook(threading.Event())
    hook.register(session)
    hook.job_ended()
    assert manager.hooks == {}


def test_a_job_that_never_got_a_session_ends_all_the_same():
    StopHook(threading.Event()).job_ended()
