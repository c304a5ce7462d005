from __future__ import annotations

import contextlib
import json
import subprocess
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.soak.sampler import (
    AGE,
    COUNT,
    DISK,
    FDS,
    FILES,
    HEAP_COMMITTED,
    HEAP_LIVE,
    METASPACE,
    NATIVE,
    RSS,
    THREADS,
    measure,
    measure_folder,
    parse_heap,
    read_series,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

SERIAL = """12:
 def new generation   total 39424K, used 100K [0x0000000687400000, 0x0000000689ec0000, 0x0000000704d50000)
  eden space 35072K,   0% used [0x0000000687400000, 0x0000000687400000, 0x0000000689640000)
 tenured generation   total 87424K, used 2240K [0x0000000704d50000, 0x000000070a2b0000, 0x0000000800000000)
   the space 87424K,   2% used [0x0000000704d50000, 0x0000000704f80310, 0x0000000704f80400)
 Metaspace       used 8907K, committed 9088K, reserved 1114112K
  class space    used 1062K, committed 1152K, reserved 1048576K
"""
G1 = """12:
 garbage-first heap   total 40960K, used 5956K [0x0000000687400000, 0x0000000800000000)
  region size 4096K, 0 young (0K), 0 survivors (0K)
 Metaspace       used 8943K, committed 9088K, reserved 1114112K
"""


@pytest.mark.parametrize(
    ("text", "live", "committed", "metaspace"),
    [(SERIAL, 2340, 126_848, 8907), (G1, 5956, 40_960, 8943)],
    ids=["serial", "G1"],
)
def test_a_jvm_s_heap_is_what_its_areas_have_and_the_rest_is_native(text, live, committed, metaspace):
    assert parse_heap(text, 300_000 * 1024) == {
        HEAP_LIVE: live * 1024,
        HEAP_COMMITTED: committed * 1024,
        METASPACE: metaspace * 1024,
        NATIVE: (300_000 - committed) * 1024,
    }


def test_a_text_without_a_heap_is_refused():
    with pytest.raises(ValueError, match="names no heap"):
        parse_heap("12:\n", 0)


@contextlib.contextmanager
def standing_still(*files: int) -> Iterator[psutil.Process]:
    """A process with these files open that opens no others, as that of the tests may at any moment."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=files) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"\n"  # it has all its libraries
        yield psutil.Process(child.pid)


def test_a_process_is_measured_as_the_system_sees_it(tmp_path):
    with (
        (tmp_path / "open").open("w") as file,
        standing_still() as without,
        standing_still(file.fileno()) as one,
    ):
        before, after = measure([without]), measure([one])
    assert after[FDS] == before[FDS] + 1
    assert before[RSS] > 2**17
    assert before[THREADS] >= 1
    assert before[COUNT] == 1
    assert before[AGE] > 0


def test_processes_are_summed_and_one_that_has_ended_is_left_out():
    with standing_still() as ended:
        pass
    with standing_still() as one:
        assert measure([one, ended, one])[FDS] == 2 * measure([one])[FDS]
    assert measure([ended])[COUNT] == 0


def test_a_folder_has_the_files_below_it(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").write_bytes(b"x" * 5_000)
    (tmp_path / "two").write_bytes(b"")
    assert measure_folder(tmp_path)[FILES] == 2
    assert measure_folder(tmp_path)[DISK] >= 4_096
    assert measure_folder(tmp_path / "none") == {DISK: 0.0, FILES: 0.0}


def test_samples_become_points_since_the_first_one(tmp_path):
    file = tmp_path / "samples.jsonl"
    samples = [{"at_s": 50.0 + at, "figures": {"kafka": {RSS: at}}} for at in (0, 5)]
    samples.append({"at_s": 60.0, "figures": {"kafka": {RSS: 7}, "server": {FDS: 3}}})
    file.write_text("".join(f"{json.dumps(sample)}\n" for sample in samples))
    assert read_series(file) == {
        "kafka": {RSS: [(0.0, 0), (5.0, 5), (10.0, 7)]},
        "server": {FDS: [(10.0, 3)]},
    }
