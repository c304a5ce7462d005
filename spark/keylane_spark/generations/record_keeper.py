"""Keeps all copies of the topics' records complete: what one copy lost, or missed, is written again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane_spark.generations.ownership import Ownership

_PERIOD_S = 5.0


class RecordKeeper:
    """Looks at all copies every few seconds, in its own thread.

    `notify` gets a line for each copy that was written again, and one when an error begins: a fence, for
    example, or a shard that is away.
    """

    def __init__(self, ownership: Ownership, notify: Callable[[str], None]) -> None:
        self._ownership = ownership
        self._notify = notify
        self._fault = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="record-keeper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the step in progress."""
        self._stop.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            try:
                for line in self._ownership.repair():
                    self._notify(line)
                self._fault = ""
            except Exception as error:  # noqa: BLE001 (the thread goes on: the error may pass)
                if not self._fault:
                    self._notify(f"copies of the topics' records can't be checked: {error}")
                self._fault = str(error)
