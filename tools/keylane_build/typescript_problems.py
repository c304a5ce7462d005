"""The TypeScript client's errors, made from the Python client's and from the service's table of problems.

`python -m keylane_build.typescript_problems` writes clients/typescript/src/problems.ts.
"""

import inspect
from pathlib import Path

from keylane.api.http.problems import PROBLEMS
from keylane_client import errors
from keylane_client.errors import ERRORS_BY_STATUS, ERRORS_BY_TYPE, KeylaneError, ProblemError
from keylane_local.tools import project_root

_OF_PYTHON_ALONE = {errors.ValueMismatch, errors.NoCredentials}
"""The one is of models, which TypeScript has as types alone; the other of AWS's signatures."""
_BY_HAND = {KeylaneError, ProblemError}
_HEADER = """/**
 * Errors that the client throws, one class for each of the Python client's.
 *
 * Made by `python -m keylane_build.typescript_problems`: do not edit.
 */

import { KeylaneError, ProblemError } from "./errors.ts";
"""


def module() -> str:
    """Return the module."""
    kinds = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, KeylaneError) and each not in _OF_PYTHON_ALONE
    ]
    classes = "\n".join(_class_of(each) for each in kinds if each not in _BY_HAND)
    names = "\n".join(f'  | "{name}"' for name in sorted(PROBLEMS))
    tables = f"{_table('ERRORS_BY_TYPE', ERRORS_BY_TYPE)}\n{_table('ERRORS_BY_STATUS', ERRORS_BY_STATUS)}"
    types = (
        f"/** The types of problems that the service answers with. */\nexport type ProblemType =\n{names};"
    )
    return f"{_HEADER}\n{classes}\n{tables}\n{types}\n"


def _class_of(kind: type[KeylaneError]) -> str:
    [base, *_] = [each for each in kind.__bases__ if issubclass(each, KeylaneError)]
    text = _camel_case(inspect.cleandoc(kind.__doc__ or ""))
    return (
        f"/** {text} */\nexport class {kind.__name__} extends {base.__name__} {{\n"
        f'  static {{\n    this.prototype.name = "{kind.__name__}";\n  }}\n}}\n'
    )


def _camel_case(text: str) -> str:
    """Return a sentence about Python as one about TypeScript."""
    return (
        text.replace("`if_match`", "`ifMatch`")
        .replace('problem["since_ms"]', "problem.since_ms")
        .replace("NaN, None", "NaN, undefined")
    )


def _table(name: str, kinds: dict[str, type[ProblemError]] | dict[int, type[ProblemError]]) -> str:
    key = "string" if all(isinstance(each, str) for each in kinds) else "number"
    rows = "\n".join(f"  [{_quoted(each)}, {kind.__name__}]," for each, kind in kinds.items())
    kind_of_map = f"Map<{key}, typeof ProblemError>"
    return f"export const {name}: Readonly{kind_of_map} = new {kind_of_map}([\n{rows}\n]);\n"


def _quoted(key: str | int) -> str:
    return f'"{key}"' if isinstance(key, str) else str(key)


def write(path: Path) -> None:
    """Write the module."""
    path.write_text(module(), encoding="utf-8")


if __name__ == "__main__":
    write(project_root() / "clients" / "typescript" / "src" / "problems.ts")
