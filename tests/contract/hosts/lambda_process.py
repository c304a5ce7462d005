"""One environment of a Lambda function: `python lambda_process.py CHECKOUT FUNCTION`, events in, answers out.

It imports nothing else of the project, so the layer of the checkout is all that it finds. It takes a line of
JSON for each event, and prints one for each answer: {"answer": ...} or, if the function raised, {"raised":
[type, text]}.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

TIME_MS = 29_000


class Context:
    """What Lambda passes beside the event."""

    aws_request_id = "00000000-0000-4000-8000-000000000000"
    function_name = "keylane"
    memory_limit_in_mb = 512

    def get_remaining_time_in_millis(self) -> int:
        return TIME_MS


def main(checkout: Path, function: str) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what the function prints is its log
    folder = checkout / "functions" / function
    sys.path[0] = str(folder)
    os.chdir(folder)
    handler = importlib.import_module("handler")
    strange = [each for each in _loaded() if checkout not in each.parents]
    if strange:
        sys.exit(f"this is not of {checkout}: {strange}")
    for line in sys.stdin:
        print(json.dumps(_answer(handler, json.loads(line))), file=answers, flush=True)


def _loaded() -> list[Path]:
    modules = [each for name, each in sys.modules.items() if name == "handler" or name.startswith("keylane")]
    return [Path(each.__file__).resolve() for each in modules if getattr(each, "__file__", None)]


def _answer(handler: Any, event: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": handler.lambda_handler(event, Context())}
    except Exception as error:  # noqa: BLE001 (as Lambda does)
        return {"raised": [type(error).__name__, str(error)]}


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
