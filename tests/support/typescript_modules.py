"""The TypeScript client's modules for a browser, without the compilers: Node leaves the types out."""

from __future__ import annotations

import json

from tests.support.node import CLIENT, run_node
from tests.support.project_files import ROOT

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
