"""Tokens that issuers have signed: each is verified once, and what it permits is remembered.

A token is remembered by the SHA-256 of the header that has it: until it expires, or its issuer's keys are to
be fetched again, so that a key which the issuer has withdrawn is forgotten. Then its signature is checked
again.
"""

from __future__ import annotations

import asyncio
import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from keylane.access.policy import scope_of
from keylane.app.authorizer import AccessRequest, Decision, decide_scoped
from keylane.errors import IssuerUnavailable
from keylane.wiring.authorizer import fetch_or_log, open_verifier

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.access.policy import Issuer, Policy
    from keylane.access.scopes import Scope
    from keylane.adapters.issuers.verifier import TokenVerifier
    from keylane.model.routes import Target
    from keylane.ports import Clock

REMEMBERED_LIMIT = 4_096
LONGEST_REMEMBERED = 4_096
"""Characters of a header that is remembered: a longer one has more to remember. It is verified each time."""
DECISIONS_LIMIT, DECISION_CHARACTERS = 16, 300
"""Decisions that are remembered with a token, and the names in each: a client chooses them."""
THREADS = 2
"""For fetching keys: their own, since a name that can't be resolved may block one for long."""
KEYS_WAIT_S = 4.0
"""How long a request waits for keys: what a fetch may take, and a bit more."""
_ATTEMPTS = 3


class IssuedAccess(NamedTuple):
    """What a token permits, and until when, in seconds since 1970. `look_at_s`: when to verify it again.

    `decisions`: what was decided on requests of a route that named the same topics.
    """

    scope: Scope
    until_s: float
    look_at_s: float
    decisions: dict[tuple[str, tuple[str, ...]], Decision]

    def decide(self, request: AccessRequest, target: Target) -> Decision:
        """Return whether the scope permits a request. What it permits is remembered."""
        names = target.names(request.query)
        if target.route is None or names is None:
            return decide_scoped(self.scope, request, target)
        asked = target.route.name, names
        found = self.decisions.get(asked)
        if found is None:
            found = decide_scoped(self.scope, request, target)
            if found.is_allowed and sum(map(len, names)) <= DECISION_CHARACTERS:
                if len(self.decisions) >= DECISIONS_LIMIT:
                    self.decisions.clear()
                self.decisions[asked] = found
        return found


class IssuedTokens:
    """The tokens of a policy's issuers. For the loop's thread; keys are fetched by threads of its own.

    `forget` is called when what tokens permit counts no more: an issuer has other keys.
    """

    def __init__(self, clock: Clock, forget: Callable[[], None]) -> None:
        self._clock = clock
        self._forget = forget
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

    def recall(self, authorization: str) -> IssuedAccess | None:
        """Return what is remembered of an Authorization header with a token, None if nothing is."""
        if len(authorization) > LONGEST_REMEMBERED or not self._remembered:
            return None
        found = self._remembered.get(_digest(authorization))
        return found if found is not None and self._clock.now_ms() < found.look_at_s * 1000 else None

    def find_at_once(self, authorization: str, token: str) -> IssuedAccess:
        """Return what the token of a header permits. Raises BadToken, KeysNeeded, IssuerUnavailable."""
        found = self.recall(authorization)
        if found is not None:
            return found
        assert self._verifier is not None  # noqa: S101 - for the type checker: the policy has issuers
        assert self._policy is not None  # noqa: S101 - as above
        verified = self._verifier.verify(self._policy, token)
        issuer = self._policy.issuer_of(verified.claims["iss"])
        assert issuer is not None  # noqa: S101 - for the type checker: it has signed the token
        look_at_s = min(verified.expires_s, self._verifier.due_s(issuer))
        found = IssuedAccess(scope_of(self._policy, verified.claims), verified.expires_s, look_at_s, {})
        if len(authorization) <= LONGEST_REMEMBERED:
            self._remember(_digest(authorization), found)
        return found

    async def find(self, authorization: str, token: str) -> IssuedAccess:
        """As `find_at_once`, after the issuer's keys are fetched where that is due. Raises BadToken, too."""
        from keylane.adapters.issuers.verifier import KeysNeeded  # noqa: PLC0415 (loaded with the verifier)

        for _ in range(_ATTEMPTS):
            try:
                return self.find_at_once(authorization, token)
            except KeysNeeded as needed:
                await self._wait_for_keys(needed.issuer)
        raise IssuerUnavailable("the policy changes while the token is verified: try again")

    def fetch(self, issuer: Issuer) -> asyncio.Future[None]:
        """Begin to fetch an issuer's keys, if nobody does; return the end of that."""
        running = self._fetching.get(issuer)
        if running is None:
            running = asyncio.ensure_future(self._fetch(issuer))
            self._fetching[issuer] = running
        return running

    async def _wait_for_keys(self, issuer: Issuer) -> None:
        """Wait until the keys are fetched, for a bounded time: a name may not be resolved for long."""
        try:
            await asyncio.wait_for(asyncio.shield(self.fetch(issuer)), KEYS_WAIT_S)
        except TimeoutError:
            if self._verifier is not None:
                self._verifier.wait_no_longer(issuer)

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
                    self._forget()
        finally:
            self._fetching.pop(issuer, None)

    def _remember(self, digest: bytes, found: IssuedAccess) -> None:
        self._remembered.pop(digest, None)
        while len(self._remembered) >= REMEMBERED_LIMIT:
            self._remembered.pop(next(iter(self._remembered)))
        self._remembered[digest] = found


def _digest(authorization: str) -> bytes:
    return hashlib.sha256(authorization.encode("utf-8", "surrogateescape")).digest()
