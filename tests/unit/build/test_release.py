"""`make release` refuses what does not belong in a release. That target alone builds one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile

import pytest
import yaml
from tests.support.cloudformation import ROOT

from keylane_build.release import contents, licences, npm_package, own_kafka, versions

PYPROJECT = """
[tool.hatch.build.targets.wheel]
packages = ["src/one"]
[tool.hatch.build.targets.wheel.hooks.custom]
shipped = ["page", "infra/*.yaml", "one.toml"]
"""
IN_WHEEL = {
    "one/__init__.py",
    "one/deep/two.lua",
    "keylane_local/shipped/page/index.html",
    "keylane_local/shipped/infra/a.yaml",
    "keylane_local/shipped/one.toml",
}


@pytest.fixture
def project(tmp_path):
    """A checkout of a small project."""
    folder = tmp_path / "project"
    of_package = ("src/one/__init__.py", "src/one/deep/two.lua")
    beside = ("page/index.html", "infra/a.yaml", "infra/b/c.yaml", "one.toml", "other.toml")
    for name in (*of_package, *beside):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    return folder


def packed(path, names, text="x"):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, text)
    return path


LICENCE = "one-1.dist-info/licenses/LICENSE"


def test_a_wheel_with_all_files_of_git_that_belong_in_it_is_accepted(project, tmp_path):
    wheel = packed(tmp_path / "one.whl", [*IN_WHEEL, LICENCE, "one-1.dist-info/METADATA"])
    assert list(contents.check_wheel(project, wheel)) == []


@pytest.mark.parametrize("name", sorted(IN_WHEEL))
def test_a_file_that_a_wheel_lacks_is_named(project, tmp_path, name):
    wheel = packed(tmp_path / "one.whl", [*IN_WHEEL - {name}, LICENCE])
    assert list(contents.check_wheel(project, wheel)) == [f"one.whl lacks {name}"]


@pytest.mark.parametrize(
    "name", ["one/left_over.py", "one/tests/test_two.py", "keylane_local/shipped/other.toml"]
)
def test_a_file_that_should_not_be_in_a_wheel_is_named(project, tmp_path, name):
    (project / "src" / "one" / "left_over.py").write_text("of no commit")
    wheel = packed(tmp_path / "one.whl", [*IN_WHEEL, LICENCE, name])
    assert list(contents.check_wheel(project, wheel)) == [f"one.whl has {name}, which it should not"]


def test_a_wheel_without_its_licence_is_refused(project, tmp_path):
    wheel = packed(tmp_path / "one.whl", IN_WHEEL)
    assert list(contents.check_wheel(project, wheel)) == ["one.whl has no licence"]


def test_both_packages_have_the_same_licence():
    assert (ROOT / "clients" / "python" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_an_sdist_has_files_of_git_alone_and_no_test(project, tmp_path):
    test = project / "tests" / "test_one.py"
    test.parent.mkdir()
    test.write_text("")
    subprocess.run(["git", "add", "."], cwd=project, check=True)
    sdist = tmp_path / "one.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in ("one.toml", "PKG-INFO", "secret.env", "tests/test_one.py"):
            archive.add(project / "one.toml", f"one-1/{name}")
    assert list(contents.check_sdist(project, sdist)) == [
        "one.tar.gz has secret.env, which git does not have",
        "one.tar.gz has tests/test_one.py, which is for the checkout alone",
    ]


def test_a_template_whose_code_is_not_beside_it_is_found(tmp_path):
    lines = ["a:", "  CodeUri: functions/a", "  TemplateURL: infra/b.yaml", "  ContentUri: layers/c"]
    names = ["functions/a/handler.py", "infra/b.yaml"]
    archive = packed(tmp_path / "t.zip", names)
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr("template.yaml", "\n".join(lines) + "\n")
    assert list(contents.check_template(archive)) == ["t.zip lacks layers/c, which its template names"]


def test_a_file_that_names_a_path_of_this_machine_is_named(tmp_path):
    wheel = packed(tmp_path / "one.whl", ["a.pyc"], f"{ROOT}/layers/a.py")
    assert str(ROOT) in contents.paths_of_machine(ROOT)
    assert list(contents.check_paths(wheel, {str(ROOT), "/nowhere"})) == [f"one.whl: a.pyc names {ROOT}"]
    (tmp_path / "list.txt").write_text(f"at {ROOT}\n")
    assert list(contents.check_paths(tmp_path / "list.txt", {str(ROOT)})) == [
        f"list.txt: list.txt names {ROOT}"
    ]


def test_what_pyproject_ships_exists_and_has_what_the_commands_read():
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]
    found = contents.expect_in_wheel(hatch["build"]["targets"]["wheel"], contents.tracked(ROOT))
    for name in (
        *("pom.xml", "keylane.toml", "template.yaml", "infra/jars.sha256", "clients/console/index.html"),
        *("events/env.json", "functions/query/handler.py", "examples/flights-board/page/index.html"),
    ):
        assert f"keylane_local/shipped/{name}" in found
    assert any(name.startswith("keylane_spark/lanes/library/") and name.endswith(".lua") for name in found)
    assert not any("tests" in name.split("/") or name.startswith("keylane_build") for name in found)


def test_the_version_stands_in_one_place_and_the_others_agree():
    assert versions.check_versions(ROOT) == versions.keylane.__version__


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("CHANGELOG.md", "## [0.0.1]", "CHANGELOG.md has no section"),
        ("pyproject.toml", '[project]\ndependencies = ["keylane-client[cli]==0.0.1"]', "does not require"),
        ("clients/typescript/package.json", '{"version": "0.0.1"}', r"and clients/typescript 0\.0\.1"),
    ],
)
def test_a_version_that_differs_is_named(tmp_path, old, new, said):
    (tmp_path / "clients" / "typescript").mkdir(parents=True)
    for name in ("CHANGELOG.md", "pyproject.toml", "clients/typescript/package.json"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / old).write_text(new)
    with pytest.raises(versions.NotReleasable, match=said):
        versions.check_versions(tmp_path)


def test_a_tag_and_a_client_of_another_version_are_named(monkeypatch):
    with pytest.raises(versions.NotReleasable, match=r"the tag is v9\.0\.0, and keylane is"):
        versions.check_versions(ROOT, "v9.0.0")
    monkeypatch.setattr(versions.keylane_client, "__version__", "9.0.0")
    with pytest.raises(versions.NotReleasable, match=r"keylane_client 9\.0\.0"):
        versions.check_versions(ROOT)


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ({"License-Expression": ["MIT"], "License": ["a text"]}, "MIT"),
        ({"Classifier": ["License :: OSI Approved :: BSD License", "Topic :: X"]}, "BSD License"),
        ({"License": ["Apache License 2.0\n\nand all of its text"]}, "Apache License 2.0"),
        ({}, ""),
    ],
)
def test_a_licence_is_read_from_the_field_that_names_it(fields, licence):
    assert licences.licence_of(fields) == licence


def test_a_package_without_a_licence_or_with_one_that_would_be_ours_is_refused():
    found = {
        "a": ["1", "MIT"],
        "b": ["1", "LGPL-3.0"],
        "c": ["1", ""],
        "d": ["1", "GPL-3.0-only"],
        "e": ["1", "GNU Affero General Public License v3"],
    }
    assert list(licences.check_licences(found)) == [
        "c names no licence",
        "d has the licence GPL-3.0-only",
        "e has the licence GNU Affero General Public License v3",
    ]


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_by_its_commit_and_names_its_version(path):
    used = [line for line in path.read_text("utf-8").splitlines() if "uses:" in line]
    assert used
    pinned = re.compile(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$")
    assert [line for line in used if not pinned.search(line)] == []


def test_what_is_published_is_what_was_tried_and_its_builder_could_not_publish_it():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))["jobs"]
    build, publish = jobs["build"], jobs["publish"]
    assert "permissions" not in build
    assert "environment" not in build
    assert any("make release" in step.get("run", "") for step in build["steps"])
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"attestations": "write", "contents": "write", "id-token": "write"}
    used = [step.get("uses", "").partition("@")[0] for step in publish["steps"]]
    assert "actions/checkout" not in used, "nothing is built again"
    assert used[0] == "actions/download-artifact"
    assert used.index("actions/attest-build-provenance") < used.index("pypa/gh-action-pypi-publish")
    assert not any("password" in step.get("with", {}) for step in publish["steps"])
    [npm] = [step["run"] for step in publish["steps"] if "npm publish" in step.get("run", "")]
    assert "--provenance" in npm
    assert "TOKEN" not in npm


def test_the_npm_package_names_the_repository_whose_workflow_builds_it(tmp_path):
    file = tmp_path / "package.json"
    shutil.copy(ROOT / "clients/typescript/package.json", file)
    npm_package._name_repository(file, {})
    assert "repository" not in json.loads(file.read_text("utf-8"))
    npm_package._name_repository(
        file, {"GITHUB_REPOSITORY": "o/r", "GITHUB_SERVER_URL": "https://example.org"}
    )
    described = json.loads(file.read_text("utf-8"))
    assert described["name"] == "keylane-client"
    assert described["repository"]["url"] == "git+https://example.org/o/r.git"


def test_the_walk_names_the_question_and_both_answers_where_they_differ():
    api = own_kafka.Api("http://127.0.0.1:1")
    api.compare("the count of orders", 3, 3)
    with pytest.raises(versions.NotReleasable, match=r"(?s)^the count of orders: .*\n  3\n.*\n  4$"):
        api.compare("the count of orders", 3, 4)
    assert api.right == 1
