"""Verifies tokens of a policy's issuers, and knows when an issuer's keys have to be fetched.

It does no I/O and waits for nothing. `verify` raises KeysNeeded where keys have to be fetched first: whoever
calls fetches them (`fetch_keys`), in its own way, between `begin_fetch` and `end_fetch`, and asks again.

    fresh keys, a known kid          verified
    keys older than KEYS_TTL_S       fetched first; where that fails, the last keys, up to `keys_max_age_s`
    an unknown kid                   fetched first, then refused
    fetched within RETRY_S           not fetched again, whatever tokens name

So an issuer is asked at most once in RETRY_S, however many tokens strangers send.
"""

from collections.abc import Callable, Iterable

from keylane.access.policy import Issuer, Policy
from keylane.access.tokens import BadToken, SignedToken, VerifiedToken, check_claims, parse_token
from keylane.adapters.issuers.jwk import IssuerKey, read_jwks
from keylane.adapters.issuers.signatures import is_signed, suits
from keylane.errors import IssuerUnavailable

KEYS_TTL_S = 600.0
"""How long keys are used before they are fetched again: so long a withdrawn key is valid at most."""
RETRY_S = 60.0


class KeysNeeded(Exception):
    """The keys of this issuer have to be fetched before the token can be verified."""

    def __init__(self, issuer: Issuer) -> None:
        super().__init__(issuer.name)
        self.issuer = issuer


class _KeySet:
    """The keys of one issuer, and when they were fetched, and were to be, in seconds since 1970.

    `is_late`: nobody waits for the fetch any more.
    """

    __slots__ = ("asked_s", "fetched_s", "is_fetching", "is_late", "keys")

    def __init__(self, keys: tuple[IssuerKey, ...] = ()) -> None:
        self.keys = keys
        self.fetched_s: float | None = None
        self.asked_s: float | None = None
        self.is_fetching = self.is_late = False


class TokenVerifier:
    """Verifies tokens. `now_s`: the time in seconds since 1970; a function's other clocks may stop."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._sets: dict[Issuer, _KeySet] = {}

    def use(self, issuers: Iterable[Issuer]) -> None:
        """Know these issuers and no others; the keys of those that stay are kept."""
        self._sets = {each: self._sets.get(each) or _open_set(each) for each in issuers}

    def verify(self, policy: Policy, token: str) -> VerifiedToken:
        """Return what a token says that an issuer of the policy has signed.

        Raises BadToken, KeysNeeded, and IssuerUnavailable where there are no keys, and none to be had now.
        """
        parsed = parse_token(token)
        issuer = policy.issuer_of(parsed.claims.get("iss"))
        if issuer is None or issuer not in self._sets:
            raise BadToken("the token is of an issuer that is not known here")
        if parsed.algorithm not in issuer.algorithms:
            raise BadToken("the token's algorithm is not accepted of its issuer")
        now_s = self._now_s()
        key = self._find_key(issuer, parsed, now_s)
        if not is_signed(key, parsed.algorithm, parsed.signature, parsed.signed):
            raise BadToken("the token's signature is not valid")
        return VerifiedToken(parsed.claims, check_claims(parsed.claims, issuer, now_s))

    def due_s(self, issuer: Issuer) -> float:
        """Return when a token of the issuer is to be verified again: when its keys are fetched again.

        While the last ones count because it is away, and where the policy has them, in KEYS_TTL_S.
        """
        since_s, now_s = self._sets[issuer].fetched_s, self._now_s()
        if since_s is None or not _is_within(since_s, KEYS_TTL_S, now_s):
            since_s = now_s
        return since_s + KEYS_TTL_S

    def begin_fetch(self, issuer: Issuer) -> bool:
        """Note that the issuer's keys are fetched now; False if they need not, or are being fetched."""
        found = self._sets.get(issuer)
        if found is None or found.is_fetching or not self._may_ask(issuer, found, self._now_s()):
            return False
        found.is_fetching, found.is_late, found.asked_s = True, False, self._now_s()
        return True

    def wait_no_longer(self, issuer: Issuer) -> None:
        """Go by the last keys until the fetch ends that has begun."""
        if (found := self._sets.get(issuer)) is not None:
            found.is_late = True

    def end_fetch(self, issuer: Issuer, keys: tuple[IssuerKey, ...] | None) -> bool:
        """Take the keys that were fetched; None: they could not be. Return whether they are other ones."""
        found = self._sets.get(issuer)
        if found is None:
            return False
        found.is_fetching = False
        if keys is None:
            return False
        has_changed = keys != found.keys
        found.keys, found.fetched_s = keys, self._now_s()
        return has_changed

    def _find_key(self, issuer: Issuer, token: SignedToken, now_s: float) -> IssuerKey:
        found = self._sets[issuer]
        keys = [each for each in found.keys if suits(each, token.algorithm, token.key_id)]
        if issuer.jwks_uri is not None:
            is_fresh = _is_within(found.fetched_s, KEYS_TTL_S, now_s)
            can_wait = not found.is_late if found.is_fetching else self._may_ask(issuer, found, now_s)
            if can_wait and (not is_fresh or not keys):
                raise KeysNeeded(issuer)
            if not _is_within(found.fetched_s, issuer.keys_max_age_s, now_s) and not is_fresh:
                raise IssuerUnavailable("the keys of the token's issuer can't be fetched at the moment")
        if not keys:
            raise BadToken("the token's key (kid, alg) is none of its issuer's")
        if len(keys) > 1 and token.key_id is None:
            raise BadToken("the token does not name its key (kid), and its issuer has several")
        if len(keys) > 1:
            raise BadToken("several keys of the token's issuer have its name (kid)")
        return keys[0]

    @staticmethod
    def _may_ask(issuer: Issuer, found: _KeySet, now_s: float) -> bool:
        return issuer.jwks_uri is not None and not _is_within(found.asked_s, RETRY_S, now_s)


def _open_set(issuer: Issuer) -> _KeySet:
    return _KeySet(() if issuer.jwks is None else read_jwks(issuer.jwks.encode(), is_strict=True))


def _is_within(since_s: float | None, span_s: float, now_s: float) -> bool:
    """Return whether no more than a span has passed since then. A clock that went back says no."""
    return since_s is not None and 0 <= now_s - since_s < span_s
