"""Waits until the state has what `keylane load` wrote: the last record of each partition."""

import time
from collections.abc import Callable, Iterable

import keylane_client as api
from keylane_client import Position, Topic
from keylane_client.cli.errors import CommandFailed, ExitCode

WAIT_S = 60.0
"""How long the state may take for all of them."""
_READ_S = 10.0


class NotReadableYet(CommandFailed):
    """The rows are written, and the state does not have them yet."""

    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, written: int, position: Position, wait_s: float) -> None:
        super().__init__(
            f"{written} rows are written, but after {wait_s:.0f} s the state does not have the last ones "
            f"({position}): see whether the job runs (`keylane status`, `keylane lanes`); "
            "--no-wait ends a load as soon as Kafka has it"
        )


def wait_readable(
    topic: Topic,
    last: Iterable[tuple[str | bytes, Position]],
    written: int,
    clock: Callable[[], float] = time.monotonic,
) -> str | None:
    """Wait for each partition's last key and position; `written`: how many rows that were.

    Returns None once the state has them, or why it cannot be asked. Raises NotReadableYet, Unreachable.
    """
    until_s = clock() + WAIT_S
    for key, position in last:
        while True:
            try:
                topic.get(key, min_position=position, wait_s=max(0.0, min(_READ_S, until_s - clock())))
            except (api.PositionNotReached, api.Unavailable) as error:
                if clock() >= until_s:
                    raise NotReadableYet(written, position, WAIT_S) from error
                continue
            except api.ValueNotReadable:
                pass  # the state has it, and refers to Kafka
            except api.ProblemError as error:
                return str(error)
            break
    return None
