"""Figures of a measurement: percentiles, facts about the machine, and the file that has them."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / ".keylane-bench"
PACKAGES = ("redis", "hiredis", "aws-lambda-powertools", "confluent-kafka", "pyarrow", "numpy", "pyspark")
_STOLEN_S = getattr(psutil.cpu_times(), "steal", 0.0)


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile. Raises ValueError without samples."""
    if not samples:
        raise ValueError("there are no samples")
    rank = math.ceil(percent / 100 * len(samples))
    return sorted(samples)[max(rank, 1) - 1]


def percentiles(samples: Sequence[float], *percents: int) -> dict[str, float]:
    """Return such percentiles of many samples, and the highest of them, by their names: p50, ..., max."""
    ordered = sorted(samples)
    return {f"p{percent}": percentile(ordered, percent) for percent in percents} | {"max": ordered[-1]}


def machine() -> dict[str, Any]:
    """Return facts about this run: cores, memory, versions, commit, load of other processes."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _output("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_1min": round(os.getloadavg()[0], 2),
        "stolen_s": round(getattr(psutil.cpu_times(), "steal", 0.0) - _STOLEN_S, 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "redis_server": _first_version(_output("redis-server", "--version")),
        "packages": {name: installed for name in PACKAGES if (installed := _installed(name))},
    }


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document into a folder, which is made."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _first_version(text: str) -> str:
    found = re.search(r"\d+\.\d+\.\d+", text)
    return found[0] if found else ""


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
