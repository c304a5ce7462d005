"""The layer's content: `python3 build_layer.py --to FOLDER` fills FOLDER/python with all that it needs.

The wheels are Lambda's whatever machine builds: pip fetches them by platform and Python version, and builds
none. KEYLANE_ARCHITECTURE and KEYLANE_RUNTIME (as the template's parameters) say for which, x86_64 and
python3.13 by default; `sam build` hands them on to the Makefile beside this. Standard library only.
"""

from __future__ import annotations

import argparse
import compileall
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHITECTURES = {"x86_64": "x86_64", "arm64": "aarch64"}
# Of Amazon Linux 2023, which has glibc 2.34: python3.12 and newer.
PLATFORMS = ("manylinux_2_28", "manylinux2014", "manylinux_2_17")
MOST_BYTES = 60_000_000
# What nothing imports. Names of distributions stay (METADATA): importlib.metadata reads them.
_SPARE_FILES = (
    "*.pyi",
    "*.pyx",
    "*.pxd",
    "*.c",
    "*.h",
    "*.proto",
    "RECORD",
    "WHEEL",
    "INSTALLER",
    "REQUESTED",
)
_SPARE_FOLDERS = ("__pycache__", "tests", "test", "bin")


def build(folder: Path, architecture: str, runtime: str) -> None:
    """Fill `folder`/python anew. Raises CalledProcessError of pip, ValueError where it's too large."""
    target = folder / "python"
    shutil.rmtree(target, ignore_errors=True)
    _install(target, architecture, runtime.removeprefix("python"))
    for pattern in _SPARE_FOLDERS:
        for path in sorted(target.rglob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
    for pattern in _SPARE_FILES:
        for path in target.rglob(pattern):
            path.unlink()
    shutil.copytree(
        HERE / "python" / "keylane", target / "keylane", ignore=shutil.ignore_patterns("__pycache__")
    )
    _compile(target, runtime)
    total = size_of(target)
    if total > MOST_BYTES:
        raise ValueError(f"the layer has {total:,} bytes, more than {MOST_BYTES:,}")


def _install(target: Path, architecture: str, version: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-compile", "--only-binary=:all:", "--implementation", "cp", "--python-version", version]
    command += ["--target", str(target), "--requirement", str(HERE / "requirements.txt")]
    for platform in PLATFORMS:
        command += ["--platform", f"{platform}_{ARCHITECTURES[architecture]}"]
    subprocess.run(command, check=True)


def _compile(target: Path, runtime: str) -> None:
    """Add bytecode where this Python is the runtime's: Lambda can't keep any, a layer is read-only.

    Its files name their sources by no time, which a zip archive would not keep.
    """
    if runtime != f"python{sys.version_info.major}.{sys.version_info.minor}":
        print(f"layer: no bytecode, for it takes a {runtime} to make it: cold starts are slower", flush=True)
        return
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(
        target, quiet=2, stripdir=str(target), prependdir="/opt/python", invalidation_mode=mode
    )


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def main() -> None:
    """Build, and tell what is how large."""
    parser = argparse.ArgumentParser(description="Build the layer.")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument(
        "--architecture", choices=ARCHITECTURES, default=os.environ.get("KEYLANE_ARCHITECTURE") or "x86_64"
    )
    parser.add_argument("--runtime", default=os.environ.get("KEYLANE_RUNTIME") or "python3.13")
    options = parser.parse_args()
    build(options.to, options.architecture, options.runtime)
    target = options.to / "python"
    sizes = sorted(((size_of(each), each.name) for each in target.iterdir()), reverse=True)
    for size, name in sizes[:10]:
        print(f"{size / 1e6:7.1f} MB {name}")
    print(
        f"{size_of(target) / 1e6:7.1f} MB in all, unzipped, for {options.runtime} on {options.architecture}"
    )


if __name__ == "__main__":
    main()
