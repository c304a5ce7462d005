"""`keylane invoke`: run a function once, under AWS's own runtime interface client, as on Lambda."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localstack_process_executor.runtime_api import Answer, InitError

from keylane_local.errors import BadInput
from keylane_local.process.lambda_process import Function, LambdaProcess
from keylane_local.tools import layer_sources, project_root

REQUEST_ID = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True)
class InvokeResult:
    """The function's response, and how long its start and the invocation took."""

    response: Answer
    init_ms: float
    duration_ms: float


def describe_function(name: str, layer: Path | None, log: Path, variables: Mapping[str, str]) -> Function:
    """Describe a function of this project, with the layer's sources unless `layer` is given.

    Raises BadInput if there is no such function or layer.
    """
    folder = project_root() / "functions"
    known = sorted(each.parent.name for each in folder.glob("*/handler.py"))
    if name not in known:
        raise BadInput(f"no function {name!r}; choose one of {', '.join(known)}")
    layer = layer or layer_sources()
    if not (layer / "keylane" / "__init__.py").exists():
        raise BadInput(f"{layer} is not a layer; build one with `make layer` (into build/layer/python)")
    return Function(f"keylane-{name}", folder / name, layer.absolute(), log, variables=variables)


def choose_variables(stack: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the function's variables: the stack's, with KEYLANE_ variables of `environment` over them."""
    return {**stack, **{name: value for name, value in environment.items() if name.startswith("KEYLANE_")}}


def read_event(path: Path) -> bytes:
    """Return the content of an event file; raise BadInput if it cannot be read or is not valid JSON.

    A path that is not there is looked for among the project's own: events/query/get_key.json.
    """
    shipped = project_root() / path
    try:
        text = (shipped if shipped.exists() and not path.exists() else path).read_bytes()
        json.loads(text)
    except OSError as error:
        raise BadInput(f"the event cannot be read: {error}") from error
    except ValueError as error:
        raise BadInput(f"{path} is not valid JSON: {error}") from error
    return text


def invoke(function: Function, event: bytes) -> InvokeResult:
    """Start a process of the function, run one invocation in it, and stop it."""
    began_s = time.perf_counter()
    try:
        with LambdaProcess(function) as process:
            init_ms = _elapsed_ms(began_s)
            began_s = time.perf_counter()
            return InvokeResult(process.call(event, REQUEST_ID), init_ms, _elapsed_ms(began_s))
    except InitError as error:
        return InvokeResult(Answer(failed=True, payload=error.payload), _elapsed_ms(began_s), 0.0)


def render_response(response: Answer) -> str:
    """Return the response as indented JSON, or unchanged if it is not JSON."""
    text = response.payload.decode("utf-8", "replace")
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def _elapsed_ms(began_s: float) -> float:
    return (time.perf_counter() - began_s) * 1000
