"""Build of the layer: `python3 build_layer.py --to FOLDER` fills FOLDER/python.

The wheels fit Lambda, whatever machine builds the layer: pip downloads them for a platform and a Python
version, and compiles nothing. KEYLANE_ARCHITECTURE (default x86_64) and KEYLANE_RUNTIME (default python3.13)
choose them, and must be the template's parameters Architecture and Runtime. A file of the layer
names both: `make build` and the functions read it. Standard library only.
"""

import argparse
import compileall
import os
import py_compile
import shutil
import struct
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHITECTURES = {"x86_64": "x86_64", "arm64": "aarch64"}
# What Amazon Linux 2023 (glibc 2.34) can load, the system of python3.12 and newer.
PLATFORMS = ("manylinux_2_28", "manylinux2014", "manylinux_2_17")
MAX_BYTES = 65_000_000
# Files that are never read at run time. METADATA stays: importlib.metadata reads it.
_UNUSED_FILES = (
    "_cffi.*.so",  # zstandard's other backend, for Pythons without its extension
    "backend_cffi.py",
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
_UNUSED_FOLDERS = ("__pycache__", "tests", "test", "bin")


def build(folder: Path, architecture: str, runtime: str) -> None:
    """Refill `folder`/python. Raises CalledProcessError if pip fails, ValueError if it is too large."""
    target = folder / "python"
    shutil.rmtree(target, ignore_errors=True)
    _install(target, architecture, runtime.removeprefix("python"))
    for pattern in _UNUSED_FOLDERS:
        for path in sorted(target.rglob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
    for pattern in _UNUSED_FILES:
        for path in target.rglob(pattern):
            path.unlink()
    shutil.copytree(
        HERE / "python" / "keylane", target / "keylane", ignore=shutil.ignore_patterns("__pycache__")
    )
    for library in target.rglob("zstandard/*.so"):
        drop_sections(library)
    # keylane.BUILT_FOR
    (target / "keylane" / "built_for").write_text(f"{runtime} {architecture}\n", encoding="utf-8")
    _compile(target, runtime)
    total = size_of(target)
    if total > MAX_BYTES:
        raise ValueError(f"the layer has {total:,} bytes; at most {MAX_BYTES:,} are allowed")


def _install(target: Path, architecture: str, version: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    # Wheels whose hash is not in the requirements are refused.
    command += [
        "--require-hashes",
        "--no-compile",
        "--only-binary=:all:",
        "--implementation",
        "cp",
        "--python-version",
        version,
    ]
    command += ["--target", str(target), "--requirement", str(HERE / "requirements.txt")]
    for platform in PLATFORMS:
        command += ["--platform", f"{platform}_{ARCHITECTURES[architecture]}"]
    subprocess.run(command, check=True)


def drop_sections(library: Path) -> None:
    """Cut off what of a 64-bit ELF library is not loaded: of zstandard's it is 11 MB of symbols, of 12.

    What a loader needs is in segments. The sections' headers, which go too, are for linkers and debuggers.
    """
    data = bytearray(library.read_bytes())
    (headers,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    end = headers + size * count
    for header in range(headers, end, size):
        offset, _, _, length = struct.unpack_from("<4Q", data, header + 8)
        end = max(end, offset + length)
    struct.pack_into("<Q", data, 40, 0)
    struct.pack_into("<3H", data, 58, 0, 0, 0)
    library.write_bytes(data[:end])


def _compile(target: Path, runtime: str) -> None:
    """Add bytecode, if this Python is the runtime's: Lambda cannot cache it, because layers are read-only.

    It is not validated by the sources' modification times, which a zip archive does not preserve.
    """
    if runtime != f"python{sys.version_info.major}.{sys.version_info.minor}":
        print(
            f"layer: no bytecode, so cold starts are slower: only {runtime} can compile it",
            flush=True,
        )
        return
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(
        target, quiet=2, stripdir=str(target), prependdir="/opt/python", invalidation_mode=mode
    )


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder, at any depth."""
    if path.is_file():
        return path.stat().st_size
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def main() -> None:
    """Build the layer and print the sizes of its largest parts."""
    parser = argparse.ArgumentParser(description="Build the Lambda layer.")
    parser.add_argument("--to", type=Path, required=True, help="folder to fill")
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
