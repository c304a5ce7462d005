"""What the allocator of a process gives back to the system."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from keylane_server.allocator import LIMITS

PROGRAM = textwrap.dedent("""
    import multiprocessing, psutil, sys
    from keylane_server.allocator import limit_allocator

    def leave_holes():
        if sys.argv[1] == "limited":
            limit_allocator()
        kept = []
        for _ in range(2):  # glibc keeps what is as large as what it has seen freed
            large = []
            for _ in range(300):
                large.append(b"x" * 1024 * 1024)
                kept.append(b"x" * 2048)
            del large
        print(psutil.Process().memory_info().rss // 2**20)

    process = multiprocessing.get_context("fork").Process(target=leave_holes)
    process.start()
    process.join()
""")


def rss_mib(how: str, **variables: str) -> int:
    """What a forked process has after it has freed 300 blocks of 1 MiB with small ones between them."""
    own = {name: value for name, value in os.environ.items() if name not in LIMITS}
    command = [sys.executable, "-c", PROGRAM, how]
    return int(subprocess.check_output(command, env={**own, **variables}, timeout=60))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_a_forked_process_gives_large_blocks_back_unless_the_environment_says_otherwise():
    assert rss_mib("limited") < 80
    assert rss_mib("as it is") > 100
    assert rss_mib("limited", MALLOC_MMAP_THRESHOLD_=str(4 * 1024 * 1024)) > 100
