"""The npm package of the TypeScript client: its size, its types, and that it works where npm puts it."""

from __future__ import annotations

import gzip

import pytest
from tests.support.node import CLIENT, page_blocks, run_node
from tests.support.project_files import ROOT

from keylane_build.release import npm_package
from keylane_build.release.npm_package import (
    NotPackable,
    build_package,
    check_package,
    check_use,
    install_package,
)

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return build_package(ROOT, tmp_path_factory.mktemp("package"))


def test_its_types_are_those_that_its_users_have(package, tmp_path):
    blocks = tmp_path / "blocks"
    blocks.mkdir()
    for number, block in enumerate(page_blocks().values()):
        (blocks / f"example_{number}.ts").write_text(block, encoding="utf-8")
    use = ROOT / CLIENT / "tests" / "typed_use.ts"
    check_use(package, [use, *blocks.iterdir()], tmp_path / "user")


def test_a_wrong_use_of_its_types_is_an_error(package, tmp_path):
    wrong = tmp_path / "wrong.ts"
    wrong.write_text('import { Client } from "keylane-client";\nnew Client("a").topic("b").get();\n')
    with pytest.raises(NotPackable, match="Expected 1-2 arguments"):
        check_use(package, [wrong], tmp_path / "user")


def test_its_minified_module_is_a_client(package, tmp_path):
    install_package(package, tmp_path)
    (tmp_path / "use.mjs").write_text(
        'import { Client, NO_RETRIES } from "keylane-client";\n'
        'const topic = new Client("http://127.0.0.1:9", { retries: NO_RETRIES }).topic("t");\n'
        "await topic.read('k').catch((error) => console.log(error.name));\n"
    )
    assert run_node(tmp_path / "use.mjs") == "Unreachable\n"


def test_a_module_that_is_larger_than_pages_should_load_is_refused(package, monkeypatch):
    monkeypatch.setattr(npm_package, "MOST_BYTES", 5_000)
    [problem] = check_package(package)
    assert "5000 are the most" in problem
    assert len(gzip.compress(package.read_bytes())) > 5_000
