"""Checks by a JSON Schema of a registry, which any writer may have registered: time and memory are bounded.

1. `json_schema_cost` estimates the worst. What is sure to be short, a schema's compiling and the check of a
   value, is done here: nearly all are. One of them at a time, because they hold the interpreter.
2. Any other is done in a process of its own (about 50 ms), which the system ends once it took too much. A few
   of these processes run at a time, behind all others; a few requests wait for them, and no more.

Imported where the settings name a subject, not before.
"""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from keylane.adapters.registry import json_schema_cost
from keylane.adapters.registry.compiled import ONE_AT_A_TIME, size_of
from keylane.adapters.registry.json_schema import Fault, uris, validator
from keylane.errors import RegistryUnavailable

_log = logging.getLogger("keylane")

CHILD_CPU_S = 1
CHILD_WALL_S = 8
"""Longer than the processor time, for a machine that does other things: then the value is not at fault."""
CHILD_MEMORY_BYTES = 256 * 1024 * 1024
TOO_MUCH = Fault(
    "",
    f"the check by its schema takes more than {CHILD_CPU_S} s or {CHILD_MEMORY_BYTES >> 20} MiB: "
    "simplify the schema (nested anyOf, oneOf, recursion, look-around in patterns)",
)


CHILDREN, WAITING = 2, 3
"""How many of its processes run at a time, and how many checks wait for one of them."""
WAIT_S = 2.0
_running, _waiting = threading.BoundedSemaphore(CHILDREN), threading.BoundedSemaphore(CHILDREN + WAITING)


class BoundedValidator(NamedTuple):
    """`find_fault`: as of `json_schema.validator`; `size_bytes`: about what it takes in memory."""

    find_fault: Callable[[bytes], Fault | None]
    size_bytes: int


def bounded_validator(text: str, references: Sequence[tuple[str, str]]) -> BoundedValidator:
    """As `json_schema.validator`, for a schema's text. A value whose check takes too much has a fault.

    Raises ValueError, RecursionError for a schema that can't be used; the function, and this for a schema
    whose cost has no bound, RegistryUnavailable.
    """
    schema = json.loads(text)
    documents = {uri: json.loads(each) for name, each in references for uri in uris(schema, name)}
    characters = len(text) + sum(len(each) for _, each in references)
    is_short = characters <= json_schema_cost.CHARACTERS_LIMIT
    cost = json_schema_cost.estimate(schema, documents) if is_short else None
    if cost is None:
        _ask_child(text, references)
        return BoundedValidator(lambda value: _ask_child(text, references, value), characters)
    with ONE_AT_A_TIME:
        find_fault = validator(schema, references)

    def find_bounded(value: bytes) -> Fault | None:
        if not cost.allows(value):
            return _ask_child(text, references, value)
        with ONE_AT_A_TIME:
            return find_fault(value)

    return BoundedValidator(find_bounded, size_of(text, references) + cost.patterns_bytes)


@contextmanager
def _place() -> Iterator[None]:
    """Have the block run one of the processes. Raises RegistryUnavailable where others take too long."""
    if not _waiting.acquire(blocking=False):
        raise RegistryUnavailable("too many values are checked by schemas that take long")
    try:
        if not _running.acquire(timeout=WAIT_S):
            raise RegistryUnavailable("other values are checked by schemas that take long")
        try:
            yield
        finally:
            _running.release()
    finally:
        _waiting.release()


def _ask_child(text: str, references: Sequence[tuple[str, str]], value: bytes | None = None) -> Fault | None:
    """Ask the other process for the value's fault or, without a value, whether the schema can be used.

    Raises ValueError for a schema that can't be used, and RegistryUnavailable instead where there is a value:
    the schema could be used before; also where the process took too long.
    """
    question = {
        "schema": text,
        "references": references,
        "value": None if value is None else value.decode("latin-1"),
        "seconds": CHILD_CPU_S,
        "bytes": CHILD_MEMORY_BYTES,
    }
    with _place():
        answer = _run_child(json.dumps(question).encode())
    if answer is None:
        if value is None:
            raise ValueError(TOO_MUCH.reason)
        return TOO_MUCH
    if "unusable" in answer:
        if value is None:
            raise ValueError(answer["unusable"])
        raise RegistryUnavailable(f"the schema can't be used: {answer['unusable']}")
    return Fault(*answer["fault"]) if answer["fault"] else None


def _run_child(question: bytes) -> dict[str, Any] | None:
    """Return the process's answer, None where the system has ended it."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "keylane.adapters.registry.json_schema_child"],
            input=question,
            capture_output=True,
            timeout=CHILD_WALL_S,
            check=False,
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    except subprocess.TimeoutExpired as error:
        raise RegistryUnavailable("a value could not be checked by its schema in time") from error
    if done.returncode:
        _log.warning("a check by a schema ended with %s: %s", done.returncode, done.stderr[-200:])
        return None
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
