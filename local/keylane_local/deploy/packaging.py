"""Packaging of the template: the code of functions and layer as zip archives, named by their hashes."""

import hashlib
import io
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from keylane_local.errors import StackError
from keylane_local.process.processes import tail

RUNTIME = f"python{sys.version_info.major}.{sys.version_info.minor}"
ARCHITECTURE = "arm64" if platform.machine() in {"arm64", "aarch64"} else "x86_64"
LAYER = "layers/keylane"
_CODE = re.compile(r"^(?P<before>\s+(?:CodeUri|ContentUri): )(?P<folder>[\w/.-]+)$", re.MULTILINE)
# A fixed time: archives of equal files have equal bytes, so unchanged code is not deployed again.
_TIME = (1980, 1, 1, 0, 0, 0)


def package_template(
    template: str, archive_of: Callable[[str], bytes], upload: Callable[[str, bytes], str]
) -> str:
    """Return `template` with each folder of code replaced by the URI of its archive.

    `archive_of` returns the archive of a folder that the template names; `upload` takes its name and
    bytes and returns its URI.
    """
    addresses: dict[str, str] = {}

    def address(match: re.Match[str]) -> str:
        folder = match["folder"]
        if folder not in addresses:
            data = archive_of(folder)
            digest = hashlib.sha256(data).hexdigest()[:32]
            addresses[folder] = upload(f"{folder.replace('/', '-')}-{digest}.zip", data)
        return match["before"] + addresses[folder]

    return _CODE.sub(address, template)


def archive(folder: Path) -> bytes:
    """Return a zip archive of the files in `folder`, at any depth."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and (folder / "__pycache__") not in path.parents:
                info = zipfile.ZipInfo(str(path.relative_to(folder)), _TIME)
                info.external_attr = 0o644 << 16
                info.compress_type = zipfile.ZIP_DEFLATED
                zipped.writestr(info, path.read_bytes())
    return data.getvalue()


def build_layer_archive(root: Path, build: Path) -> bytes:
    """Return an archive of the layer for this machine and this Python; the folder `build` keeps it.

    Raises StackError, with the end of pip's output, if a wheel is not available.
    """
    source = root / LAYER
    wanted = _digest(source)
    folder, kept, stamp, log = (build / name for name in ("layer", "layer.zip", "layer.stamp", "layer.log"))
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return kept.read_bytes()
    build.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    command = [sys.executable, str(source / "build_layer.py"), "--to", str(folder)]
    command += ["--architecture", ARCHITECTURE, "--runtime", RUNTIME]
    with log.open("wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise StackError(f"the layer could not be built:\n{tail(log)}")
    kept.write_bytes(archive(folder))
    stamp.write_text(wanted, encoding="utf-8")
    return kept.read_bytes()


def _digest(source: Path) -> str:
    hashed = hashlib.sha256(f"{ARCHITECTURE} {RUNTIME}".encode())
    for path in sorted(source.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            hashed.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()
