"""infra/docker/*-requirements.txt: the packages of the images, each by version and hash."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cloudformation import ROOT

from keylane_build import image_requirements

DOCKER = ROOT / "infra" / "docker"


def stored(image):
    """Each package of an image with its hashes."""
    lines = (
        (DOCKER / f"{image}-requirements.txt").read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    )
    return {line.split()[0]: re.findall(r"--hash=sha256:([0-9a-f]{64})\b", line) for line in lines[1:]}


@pytest.mark.parametrize("image", image_requirements.EXTRAS)
def test_the_images_requirements_are_up_to_date_and_have_hashes(image):
    pins = [f"{name}=={version}" for name, version in image_requirements.pin_image(image).items()]
    found = stored(image)
    assert list(found) == pins, "make image-requirements"
    assert all(found.values())


def test_what_builds_packages_from_sources_is_pinned_too():
    found = stored("build")
    assert list(found) == [f"{name}=={version}" for name, version in image_requirements.BUILDERS.items()]
    assert all(found.values())


def test_only_pyspark_comes_as_sources():
    """Another package without wheels would need a compiler in the image."""
    counts = {line.partition("==")[0]: len(hashes) for line, hashes in stored("job").items()}
    assert counts["pyspark"] == 1
    assert counts["pyarrow"] == 2  # a wheel for each architecture


@pytest.mark.parametrize("recipe", sorted(DOCKER.glob("*.Dockerfile")), ids=lambda path: path.stem)
def test_every_pip_install_of_an_image_demands_hashes_or_fetches_nothing(recipe):
    installs = re.findall(
        r"pip install (.*?)(?:&&|$)", recipe.read_text("utf-8").replace("\\\n", ""), re.MULTILINE
    )
    assert installs
    for each in installs:
        options = {"--require-hashes", "--requirement"}, {"--no-index", "--no-deps"}
        assert any(wanted <= set(each.split()) for wanted in options), each


@pytest.mark.parametrize(
    ("module", "parts"),
    [
        ("keylane_cli.serve", "keylane_cli.serve, keylane_server.worker"),
        ("keylane_spark", "keylane_spark.__main__, keylane_spark.stream.tasks"),
    ],
)
def test_an_image_s_python_path_has_what_its_program_imports_and_none_imports_opentelemetry(module, parts):
    """Nothing is installed there: the sources are found by the path alone. No variable asks for spans."""
    [recipe] = [path for path in DOCKER.glob("*.Dockerfile") if f'"{module}"' in path.read_text("utf-8")]
    [path] = re.findall(r"^ENV PYTHONPATH=(\S+)$", recipe.read_text("utf-8"), re.MULTILINE)
    folders = [ROOT / Path(each).relative_to("/keylane") for each in path.split(":")]
    code = (
        f"import sys; sys.path[:0] = {[str(each) for each in folders]}\n"
        f"import {parts}\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "own = {name for name in sys.modules if name.partition('.')[0].startswith('keylane')}\n"
        "print(*{sys.modules[each].__file__ for each in own})"
    )
    files = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert files
    assert not [each for each in files if not any(Path(each).is_relative_to(folder) for folder in folders)]


def test_the_image_that_serves_the_api_needs_nothing_but_what_it_copies(tmp_path):
    modules = "keylane_cli.serve, keylane_server.worker, keylane_server.server"
    recipe = (DOCKER / "server.Dockerfile").read_text("utf-8")
    for line in re.findall(r"^COPY (.+)$", recipe, re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            place = tmp_path / target / (Path(source).name if target.endswith("/") else "")
            place.parent.mkdir(parents=True, exist_ok=True)
            ignored = shutil.ignore_patterns("__pycache__", "build")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=ignored)
            elif (ROOT / source).suffix != ".txt":
                shutil.copy(ROOT / source, place)
    [path] = re.findall(r"^ENV PYTHONPATH=(\S+)$", recipe, re.MULTILINE)
    folders = [str(tmp_path / Path(each).relative_to("/keylane")) for each in path.split(":")]
    variables = os.environ | {"PYTHONPATH": ":".join(folders)}
    code = (
        f"import {modules}, sys\n"
        "from keylane_local.tools import console_dir, project_root\n"
        "from keylane_server.pages import serve_console\n"
        "root = project_root()\n"
        "assert serve_console(console_dir(), '/console/').status == 200, 'the console is missing'\n"
        "print(root, *{each.__file__ for name, each in sys.modules.items() if name.startswith('keylane')})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not [each for each in done.stdout.split() if not Path(each).is_relative_to(tmp_path)]
