"""`keylane invoke`: one event to one function, under AWS's own runtime interface client, as on Lambda."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane_local.errors import BadRequest
from keylane_local.front.environments import Environment, Function, TimedOut, failure
from keylane_local.front.runtime_api import InitError
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from keylane_local.front.runtime_api import Answer

REQUEST_ID = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True)
class Invocation:
    """What came of an event: the function's answer, and how long its start and the invocation took."""

    answer: Answer
    init_ms: float
    duration_ms: float


def function_of(name: str, layer: Path | None, log: Path, variables: Mapping[str, str]) -> Function:
    """Describe a function of the project; without `layer` it has the sources. Raises BadRequest."""
    folder = project_root() / "functions"
    known = sorted(each.parent.name for each in folder.glob("*/handler.py"))
    if name not in known:
        raise BadRequest(f"no function {name!r}: there are {', '.join(known)}")
    layer = layer or project_root() / "layers" / "keylane" / "python"
    if not (layer / "keylane" / "__init__.py").exists():
        raise BadRequest(f"{layer} is no layer: `make layer` builds one, in build/layer/python")
    return Function(f"keylane-{name}", folder / name, layer.absolute(), log, variables=variables)


def variables_of(stack: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The function's variables: the local stack's, and those of our own environment before them."""
    return {**stack, **{name: value for name, value in environment.items() if name.startswith("KEYLANE_")}}


def event_of(path: Path) -> bytes:
    """An event file's text. Raises BadRequest where it is no JSON."""
    try:
        text = path.read_bytes()
        json.loads(text)
    except OSError as error:
        raise BadRequest(f"the event can't be read: {error}") from error
    except ValueError as error:
        raise BadRequest(f"{path} is no JSON: {error}") from error
    return text


def invoke(function: Function, event: bytes) -> Invocation:
    """Start an environment, hand it the event, and end it."""
    return asyncio.run(_invoke(function, event))


async def _invoke(function: Function, event: bytes) -> Invocation:
    environment = Environment(function)
    began_s = time.perf_counter()
    try:
        await environment.start()
    except InitError as error:
        return Invocation(failure("Runtime.InitError", str(error)), _ms_since(began_s), 0.0)
    init_ms = _ms_since(began_s)
    began_s = time.perf_counter()
    try:
        answer = await environment.invoke(event, REQUEST_ID)
    except TimedOut as error:
        answer = failure("Sandbox.Timedout", str(error))
    finally:
        duration_ms = _ms_since(began_s)
        await environment.stop()
    return Invocation(answer, init_ms, duration_ms)


def shown(answer: Answer) -> str:
    """The answer as indented JSON, or as it is where it is none."""
    text = answer.payload.decode("utf-8", "replace")
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def _ms_since(began_s: float) -> float:
    return (time.perf_counter() - began_s) * 1000
