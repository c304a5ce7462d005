"""Where the CPU seconds of a run of the tests go: `make test-profile`.

Each process of pytest watches the processes below it, and counts what each has used for the test that runs. A
process is seen five times a second, so what a short one used in its last fifth of a second is missing: the
last line of the table has it, for the kernel's own account of ended processes is exact.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

INTERVAL_S = 0.2
WRITTEN_EVERY = 300
"""Samples. A run that is ended by force leaves what it has counted by then."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
KINDS = (
    ("broker", (b"kafka.Kafka", b"kafka-run-class", b"kafka.docker")),
    ("registry", (b"apicurio",)),
    ("connect", (b"org.apache.kafka.connect",)),
    ("Spark JVM", (b"org.apache.spark", b"spark-submit")),
    ("Spark worker", (b"pyspark.daemon", b"pyspark/daemon", b"pyspark.worker")),
    ("redis", (b"redis-server", b"valkey-server")),
    ("LocalStack", (b"localstack",)),
    ("moto", (b"moto",)),
    ("job's driver", (b"keylane_spark", b"keylane job")),
    ("server", (b"keylane_server", b"keylane serve", b"granian")),
    ("browser", (b"chromium", b"chrome", b"playwright")),
    ("sam, linters", (b"/sam", b"cfn-lint", b"checkov", b"parliament", b"mypy", b"ruff", b"lint-imports")),
    ("other Java", (b"java",)),
    ("other Python", (b"python",)),
)
"""Kinds of processes, by what their command line has; the first that fits."""
OWN = "pytest"
OTHER = "other"
UNSEEN = "(ended unseen)"


class CpuTable:
    """A plugin of the process that prints: the table of what all processes of this run have counted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for earlier in folder.glob("*.json"):
            earlier.unlink()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("CPU seconds")
        for line in table(self._folder):
            terminalreporter.write_line(line)


def register(config: pytest.Config, folder: Path) -> None:
    """Count in each process that runs tests, and print in the one that was started."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker:
        config.pluginmanager.register(CpuTable(folder))
    if worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(CpuProfile(folder, worker))


def kind_of(command: bytes) -> str:
    """Return the kind of a process with this command line, whose parts are separated by spaces."""
    return next((kind for kind, parts in KINDS if any(part in command for part in parts)), OTHER)


class CpuProfile:
    """A plugin: counts while tests run, and writes what it counted, or prints the table of all processes."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._to = folder / f"{worker or 'main'}.json"
        self._test = "(between tests)"
        self._used: dict[str, Counter[str]] = defaultdict(Counter)
        self._seen: dict[tuple[int, int], float] = {}
        self._kinds: dict[tuple[int, int], str] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._test = nodeid

    def pytest_sessionfinish(self) -> None:
        self._over.set()
        self._thread.join()
        self._sample()
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        seen = sum(sum(of_test.values()) for of_test in self._used.values())
        own = sum(of_test[OWN] for of_test in self._used.values())
        self._used["(all)"][UNSEEN] = max(0.0, ended.ru_utime + ended.ru_stime - (seen - own))
        self._write()

    def _write(self) -> None:
        self._to.write_text(json.dumps(self._used))

    def _watch(self) -> None:
        for number in itertools.count(1):
            if self._over.wait(INTERVAL_S):
                return
            self._sample()
            if number % WRITTEN_EVERY == 0:
                self._write()

    def _sample(self) -> None:
        for process, cpu_s in _used_below(os.getpid()):
            more_s = cpu_s - self._seen.get(process, 0.0)
            self._seen[process] = cpu_s
            if more_s > 0:
                # One that has just been forked still has its parent's command line.
                if process not in self._kinds or cpu_s < 1:
                    self._kinds[process] = _kind(process[0])
                self._used[self._test][self._kinds[process]] += more_s


def _kind(pid: int) -> str:
    if pid == os.getpid():
        return OWN
    try:
        return kind_of(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "))
    except OSError:
        return OTHER


def _used_below(root: int) -> Iterator[tuple[tuple[int, int], float]]:
    """Yield each process from `root` downwards as (pid, its start), and the CPU seconds that it has used."""
    used: dict[int, tuple[int, float]] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        used[pid] = int(fields[19]), (int(fields[11]) + int(fields[12])) / TICKS_PER_S
        children[int(fields[1])].append(pid)
    below = [root]
    for pid in below:
        below += children[pid]
        if pid in used:
            started, cpu_s = used[pid]
            yield (pid, started), cpu_s


def table(folder: Path) -> list[str]:
    """Return the lines of the tables of all parts in `folder`.

    Folders of tests by kinds of processes, then the files and the tests that used most.
    """
    by_folder: dict[str, Counter[str]] = defaultdict(Counter)
    by_file: Counter[str] = Counter()
    by_test: Counter[str] = Counter()
    for part in sorted(folder.glob("*.json")):
        for test, used in json.loads(part.read_text()).items():
            file = test.partition("::")[0]
            by_folder["/".join(file.split("/")[:3] if "/" in file else [file]).removesuffix(".py")].update(
                used
            )
            by_file[file] += sum(used.values())
            by_test[test] += sum(used.values())
    total: Counter[str] = sum(by_folder.values(), Counter())
    kinds = [kind for kind, _ in total.most_common()]
    names = sorted(by_folder, key=lambda name: -sum(by_folder[name].values()))
    rows = [["", "all", *kinds]]
    for name, used in [*((name, by_folder[name]) for name in names), ("all", total)]:
        rows.append([name, f"{sum(used.values()):.0f}", *(f"{used[kind]:.0f}" for kind in kinds)])
    longest = [
        [name, f"{cpu_s:.0f}"] for counted in (by_file, by_test) for name, cpu_s in counted.most_common(40)
    ]
    return [*_aligned(rows), "", *_aligned(longest)]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if not number else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
