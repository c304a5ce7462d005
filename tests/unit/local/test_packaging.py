from __future__ import annotations

import io
import os
import sys
import zipfile

import pytest

from keylane_local.deploy import packaging
from keylane_local.errors import StackError

TEMPLATE = """\
Resources:
  Layer:
    Properties:
      ContentUri: layers/keylane
  One:
    Properties:
      CodeUri: functions/one
      Description: "CodeUri: functions/two"
  Same:
    Properties:
      CodeUri: functions/one
"""


@pytest.fixture
def folder(tmp_path):
    """A folder of two files, one below the other."""
    (tmp_path / "code" / "below").mkdir(parents=True)
    (tmp_path / "code" / "handler.py").write_text("one")
    (tmp_path / "code" / "below" / "data.txt").write_text("two")
    return tmp_path / "code"


@pytest.fixture
def layer(tmp_path):
    """A checkout whose layer is what its script writes, and how often it ran."""
    source = tmp_path / "root" / packaging.LAYER
    source.mkdir(parents=True)
    (source / "build_layer.py").write_text(
        "import pathlib, sys\n"
        "folder = pathlib.Path(sys.argv[sys.argv.index('--to') + 1], 'python')\n"
        "folder.mkdir(parents=True, exist_ok=True)\n"
        "(folder / 'made.txt').write_text(' '.join(sys.argv[3:]))\n"
        f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\n"
    )
    return tmp_path / "root", lambda: (tmp_path / "runs").read_text().count("x")


def test_each_folder_of_the_template_is_uploaded_once_and_replaced_by_its_uri():
    uploads = {}

    def upload(name, data):
        uploads[name] = data
        return f"s3://bucket/{name}"

    made = packaging.package_template(TEMPLATE, str.encode, upload)
    assert sorted(uploads.values()) == [b"functions/one", b"layers/keylane"]
    one = next(name for name, data in uploads.items() if data == b"functions/one")
    assert made.count(f"      CodeUri: s3://bucket/{one}\n") == 2
    assert '"CodeUri: functions/two"' in made
    assert "ContentUri: s3://bucket/layers-keylane-" in made


def test_archives_of_equal_files_have_equal_bytes(folder):
    first = packaging.archive(folder)
    os.utime(folder / "handler.py", (1, 1))
    assert packaging.archive(folder) == first
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        assert sorted(archive.namelist()) == ["below/data.txt", "handler.py"]
        assert archive.read("handler.py") == b"one"
    (folder / "handler.py").write_text("changed")
    assert packaging.archive(folder) != first


def test_a_function_s_own_bytecode_is_not_archived(folder):
    before = packaging.archive(folder)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "handler.pyc").write_text("x")
    assert packaging.archive(folder) == before


def test_a_layer_is_built_once_and_again_if_its_source_changes(layer, tmp_path):
    root, runs = layer
    made = packaging.build_layer_archive(root, tmp_path / "build")
    assert packaging.build_layer_archive(root, tmp_path / "build") == made
    assert runs() == 1
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        told = archive.read("python/made.txt").decode()
    assert told == f"--architecture {packaging.ARCHITECTURE} --runtime {packaging.RUNTIME}"
    assert f"python{sys.version_info.major}.{sys.version_info.minor}" == packaging.RUNTIME
    (root / packaging.LAYER / "requirements.txt").write_text("more")
    packaging.build_layer_archive(root, tmp_path / "build")
    assert runs() == 2


def test_a_layer_that_cannot_be_built_is_reported_with_the_end_of_its_log(layer, tmp_path):
    root, _ = layer
    (root / packaging.LAYER / "build_layer.py").write_text("raise SystemExit('no such wheel')")
    with pytest.raises(StackError, match=r"could not be built:\nno such wheel"):
        packaging.build_layer_archive(root, tmp_path / "build")
