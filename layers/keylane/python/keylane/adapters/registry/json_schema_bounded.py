"""Checks by a JSON Schema of a registry, which any writer may have registered: time and memory are bounded.

1. `json_schema_cost` estimates the worst. A check that is sure to be short runs here: nearly all are.
2. Any other runs in a process of its own (about 50 ms), which the system ends once it took too much.

Imported where the settings name a subject, not before.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from keylane.adapters.registry import json_schema_cost
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


def bounded_validator(text: str, references: Sequence[tuple[str, str]]) -> Callable[[bytes], Fault | None]:
    """As `json_schema.validator`, for a schema's text. A value whose check takes too much has a fault.

    Raises ValueError, RecursionError for a schema that can't be used; the function RegistryUnavailable.
    """
    schema = json.loads(text)
    documents = {uri: json.loads(each) for name, each in references for uri in uris(schema, name)}
    cost = json_schema_cost.estimate(schema, documents)
    if cost is None:
        _ask_child(schema, references)
    find_fault = None if cost is None else validator(schema, references)

    def find_bounded(value: bytes) -> Fault | None:
        if find_fault is None or cost is None or not cost.allows(value):
            try:
                return _ask_child(schema, references, value)
            except ValueError as error:
                raise RegistryUnavailable(f"the schema can't be used: {error}") from error
        return find_fault(value)

    return find_bounded


def _ask_child(
    schema: Any, references: Sequence[tuple[str, str]], value: bytes | None = None
) -> Fault | None:
    """Ask the other process for the value's fault or, without a value, whether the schema can be used.

    Raises ValueError for a schema that can't be used, RegistryUnavailable where the process took too long.
    """
    question = {
        "schema": schema,
        "references": references,
        "value": None if value is None else value.decode("latin-1"),
        "seconds": CHILD_CPU_S,
        "bytes": CHILD_MEMORY_BYTES,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "keylane.adapters.registry.json_schema_child"],
            input=json.dumps(question).encode(),
            capture_output=True,
            timeout=CHILD_WALL_S,
            check=False,
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    except subprocess.TimeoutExpired as error:
        raise RegistryUnavailable("a value could not be checked by its schema in time") from error
    if done.returncode:
        _log.warning("a check by a schema ended with %s: %s", done.returncode, done.stderr[-200:])
        if value is None:
            raise ValueError(TOO_MUCH.reason)
        return TOO_MUCH
    answer = json.loads(done.stdout)
    if "unusable" in answer:
        raise ValueError(answer["unusable"])
    return Fault(*answer["fault"]) if answer["fault"] else None
