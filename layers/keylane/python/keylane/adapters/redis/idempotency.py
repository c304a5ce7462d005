"""The port `Answers` over Redis Cluster: what was answered to an idempotency key.

    {keylane:once:DIGEST}    DIGEST: 64 hexadecimal digits

    byte     0         C: a claim, its request is not answered yet; A: an answer
             1..32     the request's fingerprint
             33..      of a claim 16 random bytes; of an answer its bytes, deflated

A claim is gone when it runs out: its request was killed by then, and may have been written.
"""

from __future__ import annotations

import logging
import os
import zlib
from typing import TYPE_CHECKING, Any

from keylane.adapters.redis.scripts import Run, Script
from keylane.errors import IdempotencyKeyReused, RequestInProgress, StateUnavailable
from keylane.ports import Claimed, Deadline

if TYPE_CHECKING:
    from keylane.adapters.redis.scripts import Scripts
    from keylane.ports import Clock

CLAIM, ANSWER = b"C", b"A"
FINGERPRINT_BYTES = 32
_HEAD = 1 + FINGERPRINT_BYTES
_log = logging.getLogger("keylane")


class RedisOnce:
    """Answers for `expiry_s`, claims for `in_progress_s`. One request at a time."""

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
        """As `Answers.claim` has it."""
        claim = CLAIM + fingerprint + os.urandom(16)
        found = self._run(self._claim, name, claim, self._in_progress_ms)
        if found is None:
            return Claimed(claim, None)
        if found[1:_HEAD] != fingerprint:
            raise IdempotencyKeyReused
        if found[:1] == CLAIM:
            raise RequestInProgress
        return Claimed(claim, zlib.decompress(found[_HEAD:]))

    def settle(self, name: str, claim: bytes, answer: bytes | None) -> None:
        """As `Answers.settle` has it."""
        kept = b"" if answer is None else ANSWER + claim[1:_HEAD] + zlib.compress(answer, 1)
        try:
            self._run(self._settle, name, claim, kept, self._expiry_ms)
        except StateUnavailable as error:
            # The client gets its answer all the same: it is about what was written.
            _log.warning("an idempotency key keeps its claim: %s; cause: %r", error, error.__cause__)

    def _run(self, script: Script, name: str, *arguments: bytes) -> Any:
        run = Run(script, f"{{keylane:once:{name}}}".encode(), arguments)
        [reply] = self._scripts.run([run], Deadline.after_ms(self._timeout_ms, self._clock))
        if isinstance(reply, StateUnavailable):
            raise reply
        return reply
