"""`PYTHON backport.py` patches the LocalStack 4.14.0 installed for PYTHON to run on Python 3.11 and 3.12.

Its metadata allows 3.10, but its code needs 3.13. These are rewritten for older versions:

- type parameters (PEP 695): `class Bundle[T](dict):`, `def f[T](x: T) -> T:`, `type Event = dict | str`;
- `warnings.deprecated`, which typing_extensions also has;
- a union with `threading.Lock`, which is a class only since 3.13.

A second run changes nothing. Standard library only.
"""

import importlib.util
import re
import sys
from pathlib import Path

NATIVE = (3, 13)
_CLASS = re.compile(r"^(\s*class \w+)\[([^]]+)\](?:\((.*)\))?:", re.MULTILINE)
_FUNCTION = re.compile(r"^(\s*(?:async )?def \w+)\[([^]]+)\]\(", re.MULTILINE)
_ALIAS = re.compile(r"^type (\w+ = )", re.MULTILINE)
_FUTURE = "from __future__ import annotations\n"
_REPLACED = {
    "from warnings import deprecated": "from typing_extensions import deprecated",
    "install_lock: Lock | None": 'install_lock: "Lock | None"',
}


def rewritten(source: str) -> str:
    """Return `source` for Python 3.11, with its type parameters as type variables of the module."""
    variables: set[str] = set()

    def names(parameters: str) -> str:
        found = [parameter.split(":")[0].strip() for parameter in parameters.split(",")]
        variables.update(found)
        return ", ".join(found)

    def a_class(match: re.Match[str]) -> str:
        head, parameters, bases = match.groups()
        return f"{head}({f'{bases}, ' if bases else ''}_typing.Generic[{names(parameters)}]):"

    def a_function(match: re.Match[str]) -> str:
        names(match[2])
        return f"{match[1]}("

    for theirs, ours in _REPLACED.items():
        source = source.replace(theirs, ours)
    source = _ALIAS.sub(r"\1", _FUNCTION.sub(a_function, _CLASS.sub(a_class, source)))
    if not variables:
        return source
    made = "".join(f'{name} = _typing.TypeVar("{name}")\n' for name in sorted(variables))
    future = _FUTURE if _FUTURE in source else ""
    return f"{future}import typing as _typing\n\n{made}\n{source.replace(_FUTURE, '', 1)}"


def main() -> int:
    """Rewrite the modules that need it; return 1, after naming the module, if one still does not compile."""
    if sys.version_info >= NATIVE:
        return 0
    spec = importlib.util.find_spec("localstack")
    if spec is None or not spec.submodule_search_locations:
        print("LocalStack is not installed for this Python")
        return 1
    for folder in spec.submodule_search_locations:
        for path in sorted(Path(folder).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            new = rewritten(source)
            if new != source:
                print(f"rewritten: {path}")
                path.write_text(new, encoding="utf-8")
            try:
                compile(new, path, "exec", dont_inherit=True)
            except SyntaxError as error:
                version = f"{sys.version_info.major}.{sys.version_info.minor}"
                print(f"{path} does not compile on Python {version}: {error}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
