"""Programs of Node, which runs TypeScript as it is: types are left out, and nothing is compiled."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.support.project_files import ROOT

from keylane_build.release.npm_package import node_program

CLIENT = Path("clients") / "typescript"


def run_node(*arguments: str | Path, given: str = "", within_s: float = 250) -> str:
    """Run Node; return what it prints. A program that fails is an AssertionError with what it said."""
    done = subprocess.run(
        [node_program(), *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


_STRIP = """
const { readdirSync, readFileSync } = require("node:fs");
const { stripTypeScriptTypes } = require("node:module");
const folder = process.argv[1];
const strip = (name) => stripTypeScriptTypes(readFileSync(`${folder}/${name}`, "utf8"));
console.log(JSON.stringify(Object.fromEntries(readdirSync(folder).map((name) => [name, strip(name)]))));
"""


def client_modules() -> dict[str, bytes]:
    """Return them by path: `/client.js` exports what the package does."""
    scripts: dict[str, str] = json.loads(run_node("-e", _STRIP, ROOT / CLIENT / "src"))
    modules = {
        f"/client/{name.removesuffix('.ts')}.js": text.replace('.ts"', '.js"').encode()
        for name, text in scripts.items()
    }
    return {**modules, "/client.js": b'export * from "./client/index.js";'}


PAGES = ("clients/typescript/README.md", "docs/use/typescript.md")
_BLOCK = re.compile(r"^```ts\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page_blocks() -> dict[str, str]:
    """Return each example by its page and number."""
    return {
        f"{page}-{number}": block
        for page in PAGES
        for number, block in enumerate(_BLOCK.findall((ROOT / page).read_text(encoding="utf-8")))
    }
