"""The port `IdempotencyStore` over Redis Cluster: the saved response of each idempotency key.

    {keylane:once:DIGEST}    DIGEST: 64 hexadecimal digits

    byte     0         C: a claim, its request is in progress; A: a saved response
             1..32     the request's fingerprint
             33..      of a claim 16 random bytes; of a response its bytes, deflated

A claim expires: its request was killed by then, and its records may have been written.
"""

import logging
import os
import zlib
from typing import Any

from keylane.adapters.redis.scripts import Run, Script, Scripts
from keylane.errors import IdempotencyKeyReused, RequestInProgress, StateUnavailable
from keylane.ports import Clock, Deadline
from keylane.produce.guards import Claimed

CLAIM, RESPONSE = b"C", b"A"
FINGERPRINT_BYTES = 32
_HEAD = 1 + FINGERPRINT_BYTES
_log = logging.getLogger("keylane")


class RedisIdempotencyStore:
    """Keeps responses for `expiry_s`, claims for `in_progress_s`. One request at a time."""

    def __init__(
        self, scripts: Scripts, clock: Clock, *, timeout_ms: float, expiry_s: int, in_progress_s: int
    ) -> None:
        self._scripts = scripts
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._expiry_ms = b"%d" % (expiry_s * 1000)
        self._in_progress_ms = b"%d" % (in_progress_s * 1000)
        self._claim = Script.named("claim")
        self._settle = Script.named("settle")

    def claim(self, name: str, fingerprint: bytes) -> Claimed:
        """See `ports.IdempotencyStore`."""
        token = CLAIM + fingerprint + os.urandom(16)
        found = self._run(self._claim, name, token, self._in_progress_ms)
        if found is None:
            return Claimed(token, None)
        if found[1:_HEAD] != fingerprint:
            raise IdempotencyKeyReused
        if found[:1] == CLAIM:
            raise RequestInProgress
        return Claimed(token, zlib.decompress(found[_HEAD:]))

    def settle(self, name: str, token: bytes, response: bytes | None) -> None:
        """See `ports.IdempotencyStore`."""
        saved = b"" if response is None else RESPONSE + token[1:_HEAD] + zlib.compress(response, 1)
        try:
            self._run(self._settle, name, token, saved, self._expiry_ms)
        except StateUnavailable as error:
            # The client gets its response all the same: it reports what was written.
            _log.warning("an idempotency key keeps its claim: %s; cause: %r", error, error.__cause__)

    def _run(self, script: Script, name: str, *arguments: bytes) -> Any:
        run = Run(script, f"{{keylane:once:{name}}}".encode(), arguments)
        [reply] = self._scripts.run([run], Deadline.after_ms(self._timeout_ms, self._clock))
        if isinstance(reply, StateUnavailable):
            raise reply
        return reply
