"""The TypeScript client without servers: its own tests, and what it shares with Python's and the API."""

from __future__ import annotations

import json
import re

import pytest
from tests.support.node import CLIENT, run_node
from tests.support.project_files import ROOT

from keylane_build import typescript_problems

SOURCES = sorted((ROOT / CLIENT / "src").glob("*.ts"))
SCHEMAS = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["components"]["schemas"]


@pytest.mark.parametrize(
    "path", sorted((ROOT / CLIENT / "tests").glob("*.test.ts")), ids=lambda path: path.name
)
def test_the_clients_own_tests_pass(path):
    run_node("--test", "--test-timeout=60000", path)


def test_its_errors_are_those_of_the_python_client():
    stored = (ROOT / CLIENT / "src" / "problems.ts").read_text(encoding="utf-8")
    assert stored == typescript_problems.module(), "make generate"


def test_each_document_that_it_reads_is_one_of_the_api():
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    named = set(re.findall(r'(?:Documents|\["schemas"\])\["(\w+)"\]', text))
    assert len(named) > 8
    assert named <= SCHEMAS.keys()


def test_it_has_no_dependency():
    package = json.loads((ROOT / CLIENT / "package.json").read_text(encoding="utf-8"))
    assert not {"dependencies", "peerDependencies", "optionalDependencies"} & package.keys()


def test_its_lock_has_hashes_and_no_addresses():
    lock = json.loads((ROOT / CLIENT / "package-lock.json").read_text(encoding="utf-8"))
    packages = [each for name, each in lock["packages"].items() if name]
    assert all(each["integrity"] for each in packages)
    assert not [each for each in packages if "resolved" in each]
