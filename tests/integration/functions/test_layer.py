"""The layer that `sam build` makes: what it carries, and that the functions need nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cloudformation import ROOT

from keylane import BUILT_FOR
from keylane.model.routes import FUNCTIONS
from keylane_build import templates

RUNTIME = f"python{sys.version_info.major}.{sys.version_info.minor}"
MOST_BYTES = 65_000_000
ARM64 = b"\xb7\x00"
"""The machine of an ELF file, at byte 18."""
LOAD = """
import sys
sys.path[:0] = [{layer!r}, {code!r}]
import handler
print(handler.lambda_handler({{"httpMethod": "GET", "path": "/"}}, None)["statusCode"])
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """What `sam build` makes, for this machine's own Python."""
    folder = tmp_path_factory.mktemp("sam")
    environment = templates.environment() | {"KEYLANE_RUNTIME": RUNTIME}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    command = [templates.program("sam"), "build", "--build-dir", str(folder / "build")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    return folder / "build"


def files_of(layer: Path) -> list[str]:
    return [str(each.relative_to(layer)) for each in layer.rglob("*") if each.is_file()]


def test_the_layer_says_what_it_was_built_for(built):
    content = (built / "KeylaneLayer" / "python" / "keylane" / BUILT_FOR).read_text()
    assert content.split()[0] == RUNTIME


def test_sam_builds_template_and_layer(built):
    assert (built / "template.yaml").exists()
    assert (built / "KeylaneLayer" / "python" / "keylane" / "routing.py").exists()


def test_the_layer_is_small_and_carries_no_more_than_functions_need(built):
    layer = built / "KeylaneLayer"
    found = files_of(layer)
    assert sum((layer / each).stat().st_size for each in found) < MOST_BYTES
    tops = {Path(each).parts[1] for each in found}
    assert not tops & {"boto3", "botocore", "pyspark", "pyarrow", "numpy", "pandas", "bin", "keylane_spark"}
    assert not [each for each in found if "tests" in Path(each).parts]


def test_the_layer_has_the_library_of_the_lanes(built):
    scripts = {each.name for each in (built / "KeylaneLayer" / "python").glob("keylane/adapters/redis/lua/*")}
    assert {
        each.name for each in ROOT.glob("layers/keylane/python/keylane/adapters/redis/lua/*.lua")
    } <= scripts


@pytest.mark.parametrize("function", FUNCTIONS)
def test_function_answers_with_the_layer_alone(built, function):
    code = LOAD.format(layer=str(built / "KeylaneLayer" / "python"), code=str(ROOT / "functions" / function))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False, cwd="/"
    )
    # Metrics stand before it.
    assert done.stdout.splitlines()[-1:] == ["404"], done.stderr


def test_the_layer_has_bytecode_of_its_runtime_that_is_never_compared_with_its_source(built):
    layer = built / "KeylaneLayer" / "python"
    compiled = layer / "keylane" / "__pycache__" / f"routing.{sys.implementation.cache_tag}.pyc"
    # PEP 552: bit 0 for a hash instead of a time, bit 1 for one that is checked.
    assert int.from_bytes(compiled.read_bytes()[4:8], "little") == 1


def test_the_layer_is_built_for_another_machine_and_python(tmp_path):
    script = str(ROOT / "layers" / "keylane" / "build_layer.py")
    wanted = ["--architecture", "arm64", "--runtime", "python3.13"]
    subprocess.run([sys.executable, script, "--to", str(tmp_path), *wanted], check=True)
    modules = list((tmp_path / "python").rglob("*.so"))
    assert modules
    for module in modules:
        assert module.read_bytes()[18:20] == ARM64, module
    assert [each for each in modules if "cpython-313-aarch64" in each.name]
    assert (tmp_path / "python" / "keylane" / BUILT_FOR).read_text() == "python3.13 arm64\n"


def test_a_function_with_the_layer_of_another_machine_says_what_to_build(tmp_path):
    (tmp_path / "keylane").mkdir()
    shutil.copy(ROOT / "layers" / "keylane" / "python" / "keylane" / "__init__.py", tmp_path / "keylane")
    (tmp_path / "keylane" / BUILT_FOR).write_text("python3.13 riscv64")
    code = LOAD.format(layer=str(tmp_path), code=str(ROOT / "functions" / "query"))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False, cwd="/"
    )
    assert "the layer was built for python3.13 on riscv64, this function runs" in done.stderr
