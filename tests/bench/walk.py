"""The walk of a GET to its MGET: how many calls it takes, and how deep our own functions are stacked.

    python tests/bench/walk.py --frames
    PYTHONPATH=OLD/layers/keylane/python python tests/bench/walk.py --handler OLD/functions/query/handler.py

It counts one warm GET of a key, an API Gateway event in, over a real Redis Cluster; then the same GET through
the standing server, an ASGI scope in. Calls are counted, not timed: the machine may be busy.

- calls: of Python and C functions, as `sys.setprofile` reports them, until the MGET is handed over: by the
  function to its socket, by the server to the connection that its requests share. A generator that goes on
  counts as a call. "own": those of the project's functions.
- frames: of the project's functions, on the stack at that moment.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import stage
import state
from functions import CONTEXT
from harness import ROOT

import keylane

if TYPE_CHECKING:
    from types import FrameType, ModuleType

EVENT = ROOT / "events" / "query" / "get_key.json"
WARM_UP = 50
HAND_OVER = ("socket.sendall", "SharedConnection.send")


class Walk:
    """What is called while it `is_on`. `folders`: of the project's code.

    `visits`: the calls, as lines indented by the number of our functions below. `frames`: our functions on
    the stack when the MGET is handed over. `total`, `own`: the calls until then.
    """

    def __init__(self, *folders: Path) -> None:
        self._folders = tuple(f"{folder}{os.sep}" for folder in folders)
        self._own = 0
        self.is_on = False
        self.visits: list[str] = []
        self.frames: list[str] = []
        self.total = self.own = 0

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """Take an event of the interpreter, as `sys.setprofile` reports it."""
        if not self.is_on or event not in ("call", "c_call"):
            return
        name = frame.f_code.co_qualname if event == "call" else argument.__qualname__
        stack = self._stack(frame)
        self.visits.append(f"{'  ' * len(stack)}{name}")
        self._own += event == "call" and self._is_own(frame)
        if name in HAND_OVER:
            if self.frames:
                sys.exit("a second command was sent: the read was not a warm one")
            self.frames, self.total, self.own = stack, len(self.visits), self._own

    def _is_own(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(self._folders)

    def _stack(self, frame: FrameType | None) -> list[str]:
        """Return our functions on the stack, outermost first."""
        found = []
        while frame is not None:
            if self._is_own(frame):
                code = frame.f_code
                found.append(f"{code.co_qualname}  {Path(code.co_filename).name}:{frame.f_lineno}")
            frame = frame.f_back
        return found[::-1]

    def show(self, name: str, *, in_full: bool) -> None:
        """Print what was counted. Exits where nothing was sent."""
        if not self.frames:
            sys.exit(f"{name}: no command was sent, there is nothing to count")
        print(
            f"{name}: {self.total} calls, {self.own} of them own, and {len(self.frames)} frames to the MGET"
        )
        print(f"{name}: {len(self.visits)} calls, {self._own} of them own, to the answer")
        if in_full:
            print(*self.visits[: self.total], "frames:", *self.frames, sep="\n")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--handler", type=Path, default=ROOT / "functions" / "query" / "handler.py")
    options.add_argument(
        "--server", default="keylane_server.worker", help="the module of the ASGI application"
    )
    options.add_argument("--frames", action="store_true", help="print each call, and the stack at the MGET")
    chosen = options.parse_args()
    layer, functions = Path(keylane.__file__).parent, chosen.handler.resolve().parents[1]
    with stage.cluster(
        replicas=0
    ) as nodes:  # nodes learn of replicas in their own time, which adds two calls
        [(key, value), *_] = state.fill(nodes, 10, 184)
        os.environ.update(state.environment(nodes))
        walk = Walk(layer, functions)
        with contextlib.redirect_stdout(sys.stderr):  # where a function prints its metrics
            call_function(chosen.handler, key, value, walk)
        walk.show("query function", in_full=chosen.frames)
        server = import_module(chosen.server)
        walk = Walk(layer, functions, Path(server.__file__ or "").parent)
        asyncio.run(call_server(server, functions, key, walk))
        walk.show("standing server", in_full=chosen.frames)


def call_function(path: Path, key: bytes, value: bytes, walk: Walk) -> None:
    """Have the handler answer the GET, the last time with the walk on."""
    spec = importlib.util.spec_from_file_location("query_handler", path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path} is not a Python module")
    function = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(function)
    event: dict[str, Any] = json.loads(EVENT.read_text(encoding="utf-8"))
    event["path"] = f"/topics/{state.LAYOUT.topic}/keys/{key.decode()}"
    event["queryStringParameters"] = event["multiValueQueryStringParameters"] = None
    sys.setprofile(walk.note)
    for number in range(WARM_UP + 1):
        walk.is_on = number == WARM_UP
        answer = function.lambda_handler(event, CONTEXT)
        walk.is_on = False
        state.check(answer, value)
    sys.setprofile(None)


async def call_server(server: ModuleType, functions: Path, key: bytes, walk: Walk) -> None:
    """Have the server's application answer the GET, the last time with the walk on.

    It listens nowhere. The walk is installed before the start: requests reuse greenlets, and a greenlet keeps
    the profiler with which it began.
    """
    # An older server loads the functions' handlers from this folder.
    own = {"functions": str(functions)} if hasattr(server, "Functions") else {}
    os.environ["STANDING_SERVER_OPTIONS"] = json.dumps({**own, "limits": {}})
    sys.setprofile(walk.note)
    app = server.build()
    life, started = asyncio.Queue[dict[str, Any]](), asyncio.Event()

    async def note_start(_: dict[str, Any]) -> None:
        started.set()

    life.put_nowait({"type": "lifespan.startup"})
    running = asyncio.ensure_future(app({"type": "lifespan"}, life.get, note_start))
    await started.wait()
    scope = {
        "type": "http",
        "method": "GET",
        "raw_path": b"/topics/%b/keys/%b" % (state.LAYOUT.topic.encode(), key),
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"accept", b"*/*"), (b"user-agent", b"bench")],
        "client": ("127.0.0.1", 1),
    }
    statuses: list[int] = []

    async def note_answer(message: dict[str, Any]) -> None:
        statuses.append(message.get("status", 200))

    for number in range(WARM_UP + 1):
        walk.is_on = number == WARM_UP
        await app(dict(scope), life.get, note_answer)
        walk.is_on = False
    sys.setprofile(None)
    if set(statuses) != {200}:
        sys.exit(f"the server did not answer with the record: {statuses}")
    life.put_nowait({"type": "lifespan.shutdown"})
    await running


if __name__ == "__main__":
    main()
