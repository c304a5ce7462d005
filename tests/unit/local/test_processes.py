from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import psutil
import pytest

from keylane_local.errors import PartFailed
from keylane_local.process.ports import is_free
from keylane_local.process.processes import find_process, has_ended, tail, wait_until
from keylane_local.process.program import Program
from keylane_local.stack.parts import SparkJob

PATIENT = "import time; print('keylane: ready', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + PATIENT
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {PATIENT!r}]); " + PATIENT


@pytest.fixture
def program(tmp_path):
    """Give a maker of programs that run a line of Python; they end with the test."""
    made = []

    def make(code, name="thing", **options):
        options.setdefault("stop_timeout_s", 10.0)
        command = [sys.executable, "-c", code]
        made.append(
            Program(
                name, command, pid_file=tmp_path / f"{name}.json", log=tmp_path / f"{name}.log", **options
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.kill()


def _ready(one):
    one.wait_until(lambda: one.said("keylane: ready"), 60)


def test_a_program_is_found_again_by_its_pid_file(program, tmp_path):
    one = program(PATIENT)
    one.start()
    _ready(one)
    again = program("raise SystemExit(9)")  # the same pid file, as another command would have it
    assert again.running
    assert again.process.pid == one.process.pid
    again.start()
    assert again.process.pid == one.process.pid
    again.stop()
    assert not one.running
    assert not one.pid_file.exists()


def test_a_pid_that_was_given_to_another_process_is_left_alone(program, tmp_path):
    with subprocess.Popen([sys.executable, "-c", PATIENT], stdout=subprocess.DEVNULL) as foreign:
        one = program(PATIENT)
        started = psutil.Process(foreign.pid).create_time()
        one.pid_file.write_text(json.dumps({"pid": foreign.pid, "started": started - 3600}))
        assert not one.running
        one.stop()
        one.kill()
        assert foreign.poll() is None
        foreign.kill()


def test_a_program_is_found_again_after_the_clock_was_set(program, monkeypatch):
    """The time of its start, and that of the boot, are others then: Linux counts from the boot."""
    one = program(PATIENT)
    one.start()
    boot_s, created_s = psutil.boot_time, psutil.Process.create_time
    monkeypatch.setattr(psutil, "boot_time", lambda: boot_s() + 3600)
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: created_s(self) + 3600)
    assert one.running


def test_a_program_whose_pid_file_can_not_be_written_does_not_go_on(program):
    one = program(PATIENT)
    one.pid_file.with_suffix(".new").mkdir()
    with pytest.raises(IsADirectoryError):
        one.start()
    ours = [
        each.info for each in psutil.process_iter(["ppid", "cmdline"]) if each.info["ppid"] == os.getpid()
    ]
    assert not [each for each in ours if PATIENT in (each["cmdline"] or ())]


REFUSES = """
import signal, time
signal.signal(signal.SIGHUP, lambda *_: print("keylane: goes on as before: why\\nkeylane: ready", flush=True))
print("keylane: ready", flush=True)
while True:
    time.sleep(600)
"""


def test_a_file_that_a_job_has_not_taken_is_named_and_tried_again(program, tmp_path):
    config = tmp_path / "keylane.toml"
    config.write_text("first")
    job = SparkJob(tmp_path, run=tmp_path, log=tmp_path / "log", config=config, environment={})
    job.program = program(REFUSES, files=[config])
    job.start()
    job.wait_ready()
    assert (job.take_refusal(), job.program.changed_inputs()) == ("", [])
    config.write_text("second")
    assert job.program.changed_inputs() == ["keylane.toml"]
    job.read_again()
    job.wait_ready()
    assert job.take_refusal() == "goes on as before: why"
    assert job.program.changed_inputs() == ["keylane.toml"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"pid": "x", "started": 1}', '{"pid": 0, "started": 1}']
)
def test_a_broken_pid_file_names_no_process(tmp_path, text):
    pid_file = tmp_path / "broken.json"
    pid_file.write_text(text)
    assert find_process(pid_file) is None


def test_a_program_that_ignores_sigterm_is_killed_after_its_time(program):
    one = program(STUBBORN, stop_timeout_s=0.3)
    one.start()
    _ready(one)
    process = one.process
    began = time.monotonic()
    one.stop()
    assert has_ended(process)
    assert 0.3 <= time.monotonic() - began < 60


def test_stopping_a_program_ends_what_it_started(program):
    one = program(PARENT)
    one.start()
    _ready(one)
    assert wait_until(lambda: len(one.process.children()) == 1, 60)
    child = one.process.children()[0]
    one.stop()
    assert has_ended(child)


def test_a_program_that_ends_while_it_starts_shows_the_end_of_its_log(program):
    one = program("print('the reason'); raise SystemExit(3)")
    one.start()
    with pytest.raises(PartFailed) as caught:
        _ready(one)
    assert caught.value.part == "thing"
    assert caught.value.tail == "the reason"


def test_a_program_that_is_never_ready_is_a_failure(program):
    one = program("import time; time.sleep(600)")
    one.start()
    with pytest.raises(PartFailed, match="not ready after 0 s"):
        one.wait_until(lambda: False, 0.2)


def test_a_program_that_does_not_exist_is_named(tmp_path):
    one = Program("thing", [tmp_path / "absent"], pid_file=tmp_path / "a.json", log=tmp_path / "a.log")
    with pytest.raises(PartFailed, match="absent cannot be started"):
        one.start()


def test_log_lines_of_an_earlier_start_do_not_count(program):
    one = program(PATIENT)
    one.start()
    _ready(one)
    one.kill()
    silent = program("import time; time.sleep(600)")
    silent.start()
    assert "keylane: ready" in tail(silent.log)
    assert not silent.said("keylane: ready")


def test_the_tail_is_the_last_lines_of_a_long_log(tmp_path):
    log = tmp_path / "long.log"
    log.write_bytes(b"\n".join(b"line %d \xff" % number for number in range(50_000)))
    assert tail(log, 2) == "line 49998 \ufffd\nline 49999 \ufffd"
    assert tail(tmp_path / "absent.log") == ""


def test_the_guard_stops_programs_when_their_starter_is_killed(program, tmp_path):
    one = program(PATIENT)
    one.start()
    _ready(one)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "run").symlink_to(tmp_path)
    script = (
        "import sys, pathlib; from keylane_local.process.guard import guarded\n"
        "with guarded(pathlib.Path(sys.argv[1])): print('on guard', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as watched:
        assert watched.stdout.readline() == b"on guard\n"
        assert one.running
        watched.kill()
    assert wait_until(lambda: not one.running, 60)


FIRST_THREAD_GONE = """
import ctypes, socket, threading, time
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="another system shows it otherwise")
def test_a_process_of_which_a_thread_still_has_its_port_has_not_ended():
    with subprocess.Popen([sys.executable, "-c", FIRST_THREAD_GONE], stdout=subprocess.PIPE) as started:
        assert started.stdout
        port = int(started.stdout.readline())
        process = psutil.Process(started.pid)
        try:
            assert wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, 20)
            assert not has_ended(process)
            assert not is_free(port)
        finally:
            started.kill()
        assert wait_until(lambda: has_ended(process), 20)
        assert is_free(port)
