"""A stack that lives as long as the command that starts it, as in a container."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING

from keylane_local.errors import PartFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane_local.stack.stack import Stack

_LOOK_S = 0.5


@contextlib.contextmanager
def stopped_afterwards(stack: Stack) -> Iterator[None]:
    """Stop the stack after the block. SIGTERM ends that as Ctrl-C does, by KeyboardInterrupt."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not leave servers behind
        stack.down()
        signal.signal(signal.SIGTERM, before)


def stay(stack: Stack) -> None:
    """Return at SIGTERM or Ctrl-C. Raises PartFailed as soon as a part does not run."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            for part in stack.parts:
                if not part.running:
                    raise PartFailed(part.name, "it has ended")
            time.sleep(_LOOK_S)
