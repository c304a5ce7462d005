"""Tokens that issuers have signed: each is verified once, and what it permits is remembered.

A token is remembered by its SHA-256, until it expires, or for as long as its issuer's keys are used: so a key
that an issuer has withdrawn is forgotten with them. What is verified again costs a signature's check.
"""

from __future__ import annotations

import asyncio
import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from keylane.access.policy import scope_of
from keylane.errors import IssuerUnavailable
from keylane.wiring.authorizer import fetch_or_log, open_verifier

if TYPE_CHECKING:
    from keylane.access.policy import Issuer, Policy
    from keylane.access.scopes import Scope
    from keylane.adapters.issuers.verifier import TokenVerifier
    from keylane.ports import Clock

REMEMBERED_LIMIT = 4_096
LONGEST_REMEMBERED = 4_096
"""Characters of a token that is remembered: a longer one has more to remember. It is verified each time."""
THREADS = 2
"""For fetching keys: their own, since a name that can't be resolved may block one for long."""
_ATTEMPTS = 3


class IssuedAccess(NamedTuple):
    """What a token permits, and until when, in seconds since 1970. `look_at_s`: when to verify it again."""

    scope: Scope
    until_s: float
    look_at_s: float


class IssuedTokens:
    """The tokens of a policy's issuers. For the loop's thread; keys are fetched by threads of its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._policy: Policy | None = None
        self._verifier: TokenVerifier | None = None
        self._remembered: dict[bytes, IssuedAccess] = {}
        self._fetching: dict[Issuer, asyncio.Future[None]] = {}
        self._executor = ThreadPoolExecutor(THREADS, "keylane-issuers")

    def use(self, policy: Policy) -> None:
        """Verify by this policy from now on. Of the former one its issuers' keys are kept alone."""
        self._policy = policy
        self._remembered.clear()
        if policy.issuers and self._verifier is None:
            self._verifier = open_verifier(self._clock)
        if self._verifier is not None:
            self._verifier.use(policy.issuers)

    def find_at_once(self, token: str) -> IssuedAccess:
        """Return what a token permits. Raises BadToken, KeysNeeded, IssuerUnavailable."""
        digest, now_s = hashlib.sha256(token.encode()).digest(), self._clock.now_ms() / 1000
        found = self._remembered.get(digest)
        if found is not None and now_s < found.look_at_s:
            return found
        assert self._verifier is not None  # noqa: S101 - for the type checker: the policy has issuers
        assert self._policy is not None  # noqa: S101 - as above
        verified = self._verifier.verify(self._policy, token)
        from keylane.adapters.issuers.verifier import KEYS_TTL_S  # noqa: PLC0415 (loaded with the verifier)

        look_at_s = min(verified.expires_s, now_s + KEYS_TTL_S)
        found = IssuedAccess(scope_of(self._policy, verified.claims), verified.expires_s, look_at_s)
        if len(token) <= LONGEST_REMEMBERED:
            self._remember(digest, found)
        return found

    async def find(self, token: str) -> IssuedAccess:
        """As `find_at_once`, after the issuer's keys are fetched where that is due. Raises BadToken, too."""
        from keylane.adapters.issuers.verifier import KeysNeeded  # noqa: PLC0415 (loaded with the verifier)

        for _ in range(_ATTEMPTS):
            try:
                return self.find_at_once(token)
            except KeysNeeded as needed:
                await asyncio.shield(self.fetch(needed.issuer))
        raise IssuerUnavailable("the policy changes while the token is verified: try again")

    def fetch(self, issuer: Issuer) -> asyncio.Future[None]:
        """Begin to fetch an issuer's keys, if nobody does; return the end of that."""
        running = self._fetching.get(issuer)
        if running is None:
            running = asyncio.ensure_future(self._fetch(issuer))
            self._fetching[issuer] = running
        return running

    def close(self) -> None:
        """End the threads, whatever they wait for."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _fetch(self, issuer: Issuer) -> None:
        verifier = self._verifier
        try:
            if verifier is None or not verifier.begin_fetch(issuer):
                return
            keys = None
            try:
                loop = asyncio.get_running_loop()
                keys = await loop.run_in_executor(self._executor, fetch_or_log, issuer, self._clock)
            finally:
                if verifier.end_fetch(issuer, keys):
                    self._remembered.clear()
        finally:
            self._fetching.pop(issuer, None)

    def _remember(self, digest: bytes, found: IssuedAccess) -> None:
        self._remembered.pop(digest, None)
        while len(self._remembered) >= REMEMBERED_LIMIT:
            self._remembered.pop(next(iter(self._remembered)))
        self._remembered[digest] = found
