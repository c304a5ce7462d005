"""README and guide of the TypeScript client, pasted: each example is a program that ends on the stack."""

from __future__ import annotations

import pytest
from tests.support.node import CLIENT, page_blocks, run_node
from tests.support.project_files import ROOT

from keylane_client import Client

BLOCKS = page_blocks()


@pytest.fixture(scope="module")
def examples_url(applied_stack) -> str:
    """The stack, with records that the examples read and do not write."""
    with Client(applied_stack.http_url) as keylane:
        bookings = keylane.session().topic("bookings")
        bookings.put("ann|0", {"to": "Zug", "fare": 11})
        assert bookings["ann|0"]
    return applied_stack.http_url


@pytest.mark.parametrize("name", BLOCKS)
def test_an_example_of_the_typescript_client_runs(examples_url, tmp_path, name):
    source = (ROOT / CLIENT / "src" / "index.ts").as_uri()
    program = (
        BLOCKS[name].replace('"keylane-client"', f'"{source}"').replace("http://localhost:8080", examples_url)
    )
    assert source in program
    path = tmp_path / "example.mts"
    path.write_text(program, encoding="utf-8")
    assert run_node(path)
