"""A circuit to one Schema Registry: a registry that does not answer must not slow every request.

1. A request that gets no answer in time, or no connection, opens the circuit for as long as one may take.
2. While it is open, requests are refused at once, with the error of the one that opened it.
3. Then one request at a time tries again: its answer closes the circuit, whatever it says.

Schemas that are known are not asked for, and go on to work.
"""

import logging
import math
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from keylane.errors import RegistryUnavailable
from keylane.ports import Deadline

LONGEST_OPEN_S = 5.0
_log = logging.getLogger("keylane")


class Circuit:
    """The circuit of one process to one registry, for all of its threads. `timeout_ms`: of a request."""

    def __init__(self, timeout_ms: float) -> None:
        self._timeout_s = timeout_ms / 1000
        self._open_s = min(self._timeout_s, LONGEST_OPEN_S)
        self._open_until_s = -math.inf
        self._why: str | None = None  # None: it is closed
        self._is_probed = False
        self._lock = threading.Lock()

    @contextmanager
    def attempt(self, deadline: Deadline) -> Iterator[None]:
        """Have the block ask the registry. Raises RegistryUnavailable while the circuit is open."""
        given_s, is_probe = deadline.remaining_s, self._enter(deadline)
        failure: RegistryUnavailable | None = None
        try:
            yield
        except RegistryUnavailable as error:
            failure = error
            raise
        finally:
            self._leave(deadline, failure, given_s, is_probe=is_probe)

    def _enter(self, deadline: Deadline) -> bool:
        """Return whether this is the request that tries again."""
        with self._lock:
            if self._why is None:
                return False
            left_s = self._open_until_s - deadline.clock.monotonic_s()
            if self._is_probed or left_s > 0:
                raise RegistryUnavailable(self._why, max(1, math.ceil(left_s)))
            self._is_probed = True
            return True

    def _leave(
        self, deadline: Deadline, failure: RegistryUnavailable | None, given_s: float, *, is_probe: bool
    ) -> None:
        cause = failure.__cause__ if failure else None
        with self._lock:
            self._is_probed = self._is_probed and not is_probe
            if not isinstance(cause, OSError) or isinstance(cause, ssl.SSLCertVerificationError):
                self._why = None
            elif isinstance(cause, TimeoutError) and given_s < self._timeout_s / 2:
                # What a request has left after many schemas says nothing of the registry.
                return
            elif self._why is None or is_probe:
                self._why = str(failure)
                self._open_until_s = deadline.clock.monotonic_s() + self._open_s
                _log.warning("the Schema Registry is not asked for %.1f s: %s", self._open_s, failure)
