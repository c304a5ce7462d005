"""A layer, its template, and the function that loads it are for one Python and one processor."""

from __future__ import annotations

import platform
import shutil
import sys

import pytest
from tests.support.cloudformation import ROOT, template

import keylane
from keylane_build import built_template
from keylane_build.stack.loading import load_template
from keylane_build.stack.parameters import Refused, read_parameters

RUNTIME = f"python{sys.version_info.major}.{sys.version_info.minor}"
MACHINE = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())


@pytest.fixture
def build(tmp_path):
    """What `sam build` leaves: the template, and a layer for python3.12 on arm64."""
    layer = tmp_path / "KeylaneLayer" / "python" / "keylane"
    layer.mkdir(parents=True)
    (layer / keylane.BUILT_FOR).write_text("python3.12 arm64\n")
    shutil.copy(ROOT / "template.yaml", tmp_path)
    return tmp_path


def test_a_built_template_is_deployed_for_what_its_layer_was_built(build):
    assert built_template.pin_parameters(build) == ("python3.12", "arm64")
    built = load_template(build / "template.yaml")
    found = read_parameters(built, {})
    assert (found["Runtime"], found["Architecture"]) == ("python3.12", "arm64")
    with pytest.raises(Refused, match="Architecture is x86_64"):
        read_parameters(built, {"Architecture": "x86_64"})
    why = built["Parameters"]["Architecture"]["ConstraintDescription"]
    assert "must be arm64: the layer was built for python3.12 on arm64" in why


def test_nothing_else_of_a_built_template_changes(build):
    built_template.pin_parameters(build)
    built, written = load_template(build / "template.yaml"), template()
    for name in built_template.PARAMETERS:
        built["Parameters"][name] = written["Parameters"][name]
    assert built == written


@pytest.mark.parametrize("built_for", [f"python2.7 {MACHINE}", f"{RUNTIME} riscv64"])
def test_a_layer_for_another_python_or_processor_says_so_at_the_start(tmp_path, built_for):
    file = tmp_path / keylane.BUILT_FOR
    file.write_text(built_for)
    runtime, architecture = built_for.split()
    with pytest.raises(ImportError) as raised:
        keylane.check_build(str(file))
    assert f"the layer was built for {runtime} on {architecture}" in str(raised.value)
    assert f"this function runs {RUNTIME} on {MACHINE}" in str(raised.value)


def test_a_layer_for_this_python_and_processor_is_imported_and_so_are_the_sources(tmp_path):
    file = tmp_path / keylane.BUILT_FOR
    keylane.check_build(str(file))
    file.write_text(f"{RUNTIME} {MACHINE}\n")
    keylane.check_build(str(file))
