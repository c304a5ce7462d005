"""Which Python runs a function: one of PROCESS_EXECUTOR_PYTHON, else the one on PATH with the runtime's name.

Standard library only.
"""

import functools
import os
import shutil
import subprocess

VARIABLE = "PROCESS_EXECUTOR_PYTHON"
_TIMEOUT_S = 30
_QUESTION = "import awslambdaric, sys; print('python%d.%d' % sys.version_info[:2])"


class NoInterpreter(Exception):
    """There is no Python of that version with awslambdaric; the text says what to do."""


@functools.cache
def runtime_of(python: str) -> str | None:
    """Return a name like "python3.11", or None if `python` does not run or has no awslambdaric."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", _QUESTION], capture_output=True, timeout=_TIMEOUT_S, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def interpreter_for(runtime: str) -> str:
    """Return the Python for functions of `runtime`; raise NoInterpreter if there is none."""
    named = [each for each in os.environ.get(VARIABLE, "").split(os.pathsep) if each]
    on_path = shutil.which(runtime) if runtime.startswith("python") else None
    for python in [*named, *([on_path] if on_path else [])]:
        if runtime_of(python) == runtime:
            return python
    raise NoInterpreter(
        f"no interpreter with awslambdaric for the runtime {runtime}: {VARIABLE} names those to use"
        f" (it has {os.pathsep.join(named) or 'none'})"
    )
