"""Processes that outlive their starter, found again by pid file; waiting for them, stopping them."""

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

# Start times have the precision of the system's clock ticks; no pid is reused within this time.
_SAME_START_S = 2.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Linux counts starts from the boot, which has this name: their time of day changes when the clock is set."""
_POLL_S = 0.02
_KILL_TIMEOUT_S = 5.0
_TAIL_BYTES = 64 * 1024


def tail(log: Path, lines: int = 20) -> str:
    """Return the last `lines` lines of `log`, or "" if there is no such file."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def wait_until(condition: Callable[[], bool], timeout_s: float, poll_s: float = _POLL_S) -> bool:
    """Poll `condition` until it holds; return whether it did within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_s)
    return True


def identify(process: psutil.Process) -> dict[str, object]:
    """Return what a pid file has of a process: its pid and when it was started."""
    found = {"pid": process.pid, "started": process.create_time()}
    with contextlib.suppress(OSError):
        found |= {"boot": _BOOT_ID.read_text(), "after_boot_s": _after_boot_s(process)}
    return found


def _after_boot_s(process: psutil.Process) -> float:
    return float(process.create_time() - psutil.boot_time())


def _is_same_start(process: psutil.Process, saved: Mapping[str, Any]) -> bool:
    if "boot" not in saved:
        return bool(abs(process.create_time() - float(saved["started"])) <= _SAME_START_S)
    is_same_boot = _BOOT_ID.read_text() == saved["boot"]
    return is_same_boot and abs(_after_boot_s(process) - float(saved["after_boot_s"])) <= _SAME_START_S


def find_process(pid_file: Path) -> psutil.Process | None:
    """Return the running process that `pid_file` names, or None.

    The start times must match: the pid may have been given to another process since.
    """
    try:
        saved = json.loads(pid_file.read_text())
        process = psutil.Process(int(saved["pid"]))
        if not _is_same_start(process, saved):
            return None
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except (FileNotFoundError, psutil.NoSuchProcess, ValueError, KeyError, TypeError):
        return None


def has_ended(process: psutil.Process) -> bool:
    """Return whether `process` has ended.

    A zombie has, once all its threads have ended: until then they have its ports.
    """
    with contextlib.suppress(psutil.TimeoutExpired):
        process.wait(0)  # reaps it if it is a child of this process
    try:
        is_zombie = process.status() == psutil.STATUS_ZOMBIE
        return not process.is_running() or (is_zombie and int(process.num_threads()) <= 1)
    except psutil.NoSuchProcess:
        return True


def stop(process: psutil.Process, timeout_s: float) -> None:
    """Send SIGTERM to `process`; after `timeout_s`, send SIGKILL to it and to its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        family = [*process.children(recursive=True), process]
        process.terminate()
        wait_until(lambda: has_ended(process), timeout_s)
        _kill(family)


def stop_now(process: psutil.Process) -> None:
    """Send SIGKILL to `process` and its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        _kill([process, *process.children(recursive=True)])


def _kill(family: list[psutil.Process]) -> None:
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    wait_until(lambda: all(map(has_ended, family)), _KILL_TIMEOUT_S)
