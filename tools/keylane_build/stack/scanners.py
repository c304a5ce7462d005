"""checkov and parliament, which check templates and policies for what AWS accepts and one should not do.

And kubernetes-validate, which compares manifests with Kubernetes' own schemas.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from keylane_build.stack.accepted import Finding
from keylane_local.tools import tools_dir

_PARLIAMENT_ONLY = "RESOURCE_STAR"
"""Our own rule E9103 finds a star with its reason beside it, so parliament need not."""


def program(name: str) -> str:
    """Return the path of a program in the linters' virtual environment."""
    return str(tools_dir() / "lint" / "bin" / name)


def run_checkov(root: Path, templates: Sequence[str]) -> set[Finding]:
    """Return what checkov finds in templates. Raises RuntimeError if it cannot read one."""
    # Without downloads and uploads: it would ask its maker's service for guidelines.
    command = [program("checkov"), "--framework", "cloudformation", "--skip-download", "--compact", "--quiet"]
    command += ["--output", "json", "--file", *templates]
    done = _run(command, root)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"checkov failed:\n{done.stdout}\n{done.stderr}") from None
    if report["summary"]["parsing_errors"]:
        raise RuntimeError(f"checkov cannot read: {report['results']['parsing_errors']}")
    return {
        Finding(
            each["check_id"],
            each["file_path"].lstrip("/"),
            each["resource"].rpartition(".")[2],
            each["check_name"],
        )
        for each in report["results"]["failed_checks"]
    }


def run_parliament(policies: Collection[tuple[str, str, dict[str, Any]]]) -> set[Finding]:
    """Return what parliament finds in policies, each given as template, resource and document."""
    documents = {(template, name, json.dumps(each, sort_keys=True)) for template, name, each in policies}
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for number, (template, name, text) in enumerate(sorted(documents)):
            path = Path(folder) / f"{number}.json"
            path.write_text(json.dumps({"Version": "2012-10-17", **json.loads(text)}), encoding="utf-8")
            files[path.name] = (template, name)
        done = _run([program("parliament"), "--directory", folder, "--json"], Path(folder))
        if done.stderr and not done.stdout:
            raise RuntimeError(f"parliament failed:\n{done.stderr}")
        return set(_read_findings(done.stdout, files))


def run_kubernetes_validate(root: Path, manifests: Sequence[str], version: str) -> list[str]:
    """Return what a version of Kubernetes would refuse of manifests: wrong types, and unknown fields."""
    done = _run(
        [program("kubernetes-validate"), "--strict", "--kubernetes-version", version, *manifests], root
    )
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    return [line for line in lines if not line.startswith("INFO ")]


def _read_findings(output: str, files: dict[str, tuple[str, str]]) -> Iterator[Finding]:
    for line in output.splitlines():
        found = json.loads(line)
        if found["issue"] == _PARLIAMENT_ONLY:
            continue
        template, name = files[Path(found["location"]["filepath"]).name]
        details = found["detail"] if isinstance(found["detail"], list) else [found["detail"]]
        for each in details:
            action = each.get("action", "") if isinstance(each, dict) else str(each)
            rule = f"{found['issue']} {action}".strip()
            yield Finding(rule, template, name, f"{found['title']}: {each}")


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
