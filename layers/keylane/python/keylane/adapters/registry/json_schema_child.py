"""Checks one value by one JSON Schema in a process of its own, for `json_schema_bounded`.

    stdin    {"schema": its text, "references": [[name, text], ...], "value": the bytes as Latin-1, or null,
              "seconds": of the processor, "bytes": of memory}
    stdout   {"fault": null or [path, reason]}, or {"unusable": why the schema can't be used}

The system ends the process if it takes more than that, or if its stack overflows.
"""

import json
import os
import resource
import sys
from typing import Any

NICENESS = 10
"""Whoever takes long waits for whoever does not."""


def check(question: dict[str, Any]) -> dict[str, Any]:
    """The answer to a question of the parent's."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (question["seconds"], question["seconds"]))
    resource.setrlimit(resource.RLIMIT_AS, (question["bytes"], question["bytes"]))
    from keylane.adapters.registry.json_schema import validator  # noqa: PLC0415 (within the limits)

    try:
        find_fault = validator(
            json.loads(question["schema"]), [(name, text) for name, text in question["references"]]
        )
    except ValueError as error:
        return {"unusable": str(error)}
    value = question["value"]
    return {"fault": None if value is None else find_fault(value.encode("latin-1"))}


if __name__ == "__main__":
    json.dump(check(json.load(sys.stdin)), sys.stdout)
