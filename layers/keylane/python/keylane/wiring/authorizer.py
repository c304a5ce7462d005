"""The policy that the authorizer goes by, and what verifies the tokens of its issuers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from keylane.access.policy import Policy
from keylane.adapters.aws import references
from keylane.config.access import read_policy
from keylane.errors import IssuerUnavailable, SettingsError, SettingsUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.access.policy import Issuer
    from keylane.access.tokens import VerifiedToken
    from keylane.adapters.issuers.jwk import IssuerKey
    from keylane.adapters.issuers.verifier import TokenVerifier
    from keylane.ports import Clock

POLICY_TTL_S = 60.0
"""How long the policy is used before it is read again."""
STALE_S = 15 * 60.0
"""How long it is used at most while no other one can be read."""
RETRY_S = 5.0
_log = logging.getLogger("keylane")


class PolicySource:
    """The policy of the environment, re-read each minute: the value of a reference may have changed.

    While Secrets Manager, Parameter Store or a file can't be read, or what is read is no policy, the last one
    stays valid for STALE_S. One that has not changed stays the same object.
    """

    def __init__(self, environment: Mapping[str, str], clock: Clock) -> None:
        self._environment = environment
        self._clock = clock
        self._policy = Policy()
        self._read_s: float | None = None
        self._next_read_s = 0.0

    def current(self) -> Policy:
        """Return the policy. Raises SettingsError, SettingsUnavailable."""
        now_s = self._clock.monotonic_s()
        if self._read_s is None or now_s >= self._next_read_s:
            try:
                found = read_policy(references.resolved(self._environment))
            except (SettingsUnavailable, SettingsError) as error:
                if self._read_s is None or now_s - self._read_s > STALE_S:
                    raise
                _log.warning("the policy of %.0f s ago is used: %s", now_s - self._read_s, error)
                self._next_read_s = now_s + RETRY_S
                return self._policy
            # As text: for Python, a rule with true is the same as one with 1.
            self._policy = self._policy if repr(found) == repr(self._policy) else found
            self._read_s, self._next_read_s = now_s, now_s + POLICY_TTL_S
        return self._policy


def open_verifier(clock: Clock) -> TokenVerifier:
    """Return what verifies tokens. It imports `cryptography`, so only where a policy has issuers."""
    from keylane.adapters.issuers.verifier import TokenVerifier  # noqa: PLC0415

    return TokenVerifier(lambda: clock.now_ms() / 1000)


def fetch_or_log(issuer: Issuer, clock: Clock) -> tuple[IssuerKey, ...] | None:
    """Return the keys of an issuer, None where they can't be fetched, which is logged. It blocks."""
    from keylane.adapters.issuers.jwks_http import fetch_keys  # noqa: PLC0415

    try:
        found = fetch_keys(issuer, clock)
    except IssuerUnavailable as error:
        _log.error(
            "the keys of %s can't be fetched from %s: %r", issuer.name, issuer.jwks_uri, error.__cause__
        )
        return None
    if not found:
        _log.error("%s has no key for signatures (RSA, EC, Ed25519) at %s", issuer.name, issuer.jwks_uri)
    return found


class BlockingVerifier:
    """Verifies tokens, and fetches keys meanwhile where that is due: for one request at a time."""

    def __init__(
        self,
        clock: Clock,
        fetch: Callable[[Issuer, Clock], tuple[IssuerKey, ...] | None] = fetch_or_log,
    ) -> None:
        self._clock = clock
        self._fetch = fetch
        self._verifier: TokenVerifier | None = None
        self._policy: Policy | None = None

    def verify(self, policy: Policy, token: str) -> VerifiedToken:
        """Return what a token says. Raises BadToken, IssuerUnavailable."""
        from keylane.adapters.issuers.verifier import KeysNeeded  # noqa: PLC0415

        verifier = self._verifier = self._verifier or open_verifier(self._clock)
        if policy is not self._policy:
            verifier.use(policy.issuers)
            self._policy = policy
        try:
            return verifier.verify(policy, token)
        except KeysNeeded as needed:
            if verifier.begin_fetch(needed.issuer):
                verifier.end_fetch(needed.issuer, self._fetch(needed.issuer, self._clock))
        return verifier.verify(policy, token)
