"""The archives of a release beside the Python packages: layer, job, and a template with all that it names."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from keylane_build import job_package
from keylane_build.built_template import pin_parameters
from keylane_local.deploy.packaging import LAYER, archive

ARCHITECTURES = ("x86_64", "arm64")
RUNTIME = "python3.13"
"""The template's default."""
_PYTHON_OF_SPARK = "3.11"


def build_archives(root: Path, folder: Path, version: str) -> None:
    """Write all of them. Raises CalledProcessError of pip; FileNotFoundError if jars are missing."""
    with tempfile.TemporaryDirectory() as work:
        for architecture in ARCHITECTURES:
            build_stack(root, Path(work, architecture), folder, f"{version}-{RUNTIME}-{architecture}")
        job = Path(work, "job")
        job_package.build(job, root / "keylane.toml", _PYTHON_OF_SPARK)
        (folder / f"keylane-job-{version}-spark-{pyspark.__version__}.zip").write_bytes(archive(job))


def build_stack(root: Path, work: Path, folder: Path, name: str) -> None:
    """Write a layer, and the template beside it, for the architecture that is the name's last part.

    `sam deploy` in the folder of the template's archive needs no `sam build`.
    """
    architecture = name.rpartition("-")[2]
    layer = work / LAYER
    command = [sys.executable, str(root / LAYER / "build_layer.py"), "--to", str(layer)]
    subprocess.run([*command, "--architecture", architecture, "--runtime", RUNTIME], check=True)
    (folder / f"keylane-layer-{name}.zip").write_bytes(archive(layer))
    (work / "infra").mkdir()
    for path in [root / "template.yaml", root / "samconfig.toml", *(root / "infra").glob("*.yaml")]:
        shutil.copy(path, work / path.relative_to(root))
    for handler in (root / "functions").glob("*/handler.py"):
        unwanted, function = shutil.ignore_patterns("__pycache__"), handler.parent
        shutil.copytree(function, work / "functions" / function.name, ignore=unwanted)
    pin_parameters(work, LAYER)
    (folder / f"keylane-template-{name}.zip").write_bytes(archive(work))
