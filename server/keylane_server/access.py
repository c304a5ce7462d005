"""Who may do what: bearer tokens and API keys, by the policy of the authorizer function (KEYLANE_ACCESS)."""

import asyncio
import logging
import math
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import NamedTuple

from keylane.access.grants import Need, grant_of
from keylane.access.policy import Policy
from keylane.access.tokens import BadToken
from keylane.app.authorizer import (
    AUDIT,
    AccessRequest,
    Decision,
    NotAuthorized,
    audit,
    decide,
    issued_token,
)
from keylane.config.table import ACCESS
from keylane.errors import KeylaneError, SettingsUnavailable, SnapshotOutdated
from keylane.metrics.meter import Meter
from keylane.model.routes import Route
from keylane.ports import Clock, Deadline
from keylane.wiring.authorizer import PolicySource
from keylane_server.greenlets import begin, call_in_thread
from keylane_server.issued_tokens import LONGEST_REMEMBERED, IssuedAccess, IssuedTokens
from keylane_server.received import Access, ReceivedRequest

__all__ = ["NotAllowed", "NotAuthorized", "TokenAuthorizer"]
GRANTED_LIMIT = 4_096
"""How many pairs of a token and what it was granted are remembered."""
LONGEST_GRANTED = 2_048
"""Of a header of which that is remembered: spaces before the token count."""
LOOK_S = 5.0
"""After how long it is looked again whether the policy is due to be read again."""
NO_RULE = "(none)"
SNAPSHOT_ROUTE = "get_snapshot"
_GRANTED = Decision("", True)
"""Of a token with a grant, whose name nobody asks for."""
_log = logging.getLogger("keylane.serve")


class NotAllowed(Exception):
    """The token does not grant the request."""


class _Granted(NamedTuple):
    """What was decided on a token's request, and until when that counts, in ms since 1970; None: always."""

    decision: Decision
    until_ms: float | None


class TokenAuthorizer:
    """Decides as the authorizer function does. A thread reads the policy: it may be in a secret store.

    `meter`: counts decisions. `is_audited`: whether each of them is logged.
    """

    def __init__(
        self, environment: Mapping[str, str], clock: Clock, executor: Executor, meter: Meter
    ) -> None:
        self._source = PolicySource(environment, clock)
        self._clock = clock
        self._executor = executor
        self.meter = meter
        self.is_audited = bool(ACCESS.read(environment, AUDIT))
        self._policy = Policy()
        self._granted: dict[tuple[bytes, str, tuple[str, ...]], _Granted] = {}
        self._issued = IssuedTokens(clock, self._granted.clear)
        self._is_closed = False
        self._looking: asyncio.TimerHandle | None = None

    @property
    def policy(self) -> Policy:
        """The policy by which it is decided now."""
        return self._policy

    def end_of(self, access: Access) -> Deadline | None:
        """When the caller's token expires; None for one that does not."""
        if not math.isfinite(access.until_s):
            return None
        return Deadline.at_ms(access.until_s * 1000, self._clock)

    def reload(self) -> None:
        """Read the policy where that is due, as a request. Raises SettingsError, SettingsUnavailable."""
        self._replace(call_in_thread(self._executor, self._source.current))

    def keep_current(self) -> None:
        """Have the policy read again where that is due, from now on, whether or not anybody asks."""
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def close(self) -> None:
        """End what `keep_current` has begun, and the threads that fetch keys."""
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
        self._issued.close()

    def _look(self) -> None:
        begin(self._reload_or_log, self._look_again)

    def _look_again(self, _: object, error: BaseException | None) -> None:
        if error is not None:
            _log.error("the policy can't be read: %r", error)
        if not self._is_closed:
            self.keep_current()

    def _reload_or_log(self) -> None:
        """Read the policy where that is due; where it can't be read for long, nobody is allowed."""
        try:
            self.reload()
        except SettingsUnavailable as error:
            self._replace(Policy())
            _log.error("every request is refused, because the policy can't be read: %s", error)
        except KeylaneError as error:
            _log.error("the policy is not changed: %s", error)

    def _replace(self, policy: Policy) -> None:
        if policy is not self._policy:
            self._policy = policy
            self._granted.clear()
            self._issued.use(policy)

    def recall(self, authorization: bytes, route: Route, names: tuple[str, ...]) -> Decision | None:
        """Return what is known to be decided on a request by its token; None where `authorize` has to decide.

        The request is about these topics and has no query. What was granted is remembered until the policy is
        read again, or a JWT is to be verified again. `count` follows an answer.
        """
        if len(authorization) > LONGEST_REMEMBERED:
            return None
        asked = authorization, route.name, names
        known = self._granted.get(asked)
        if known is not None and (known.until_ms is None or self._clock.now_ms() < known.until_ms):
            return known.decision
        granted = self._look_up(authorization, route, names)
        if granted is None:
            return None
        if len(authorization) <= LONGEST_GRANTED:
            if len(self._granted) >= GRANTED_LIMIT:
                self._granted.clear()
            self._granted[asked] = granted
        return granted.decision

    def _look_up(self, authorization: bytes, route: Route, names: tuple[str, ...]) -> _Granted | None:
        text = authorization.decode("latin-1")
        if self._policy.issuers and (issued := self._issued.recall(text)) is not None:
            decision = issued.decisions.get((route.name, names))
            return None if decision is None else _Granted(decision, issued.look_at_s * 1000)
        grant = grant_of(self._policy.grants, text) if self._policy.grants else None
        if grant is None or not grant.allows(Need(route.permission.kind, names)):
            return None
        return _Granted(_GRANTED, None)

    async def authorize(self, request: ReceivedRequest) -> Access:
        """Return who sends a request, by its token in Authorization or x-api-key.

        Raises NotAuthorized, NotAllowed, IssuerUnavailable. It waits for the keys of an issuer.
        """
        authorization = _authorization_of(request)
        found = self._issued.recall(authorization)
        if found is None and (token := issued_token(self._policy, authorization)) is not None:
            try:
                found = await self._issued.find(authorization, token)
            except BadToken as error:
                raise NotAuthorized(str(error)) from error
        return self._admit(request, authorization, found)

    def authorize_again(self, request: ReceivedRequest) -> None:
        """Raise as `authorize` where a request that was permitted would be refused now, or get other rows.

        Raises SnapshotOutdated for a snapshot that would be permitted other rows: a new one has these.
        """
        authorization = _authorization_of(request)
        token = issued_token(self._policy, authorization)
        found = None
        if token is not None:
            found = self._find_again(request, authorization, token)
            if found is None:
                return
        _, decision = self._decide(request, authorization, found)
        if decision.is_allowed and decision.scope == request.access.scope:
            return
        route, topics = request.target.route, request.target.names({})
        if decision.is_allowed and topics and route is not None and route.name == SNAPSHOT_ROUTE:
            raise SnapshotOutdated(topics[0], "other rules apply to the caller since it began")
        raise NotAllowed

    def _find_again(self, request: ReceivedRequest, authorization: str, token: str) -> IssuedAccess | None:
        """Return what a token permits now; None while keys are fetched: it has not expired."""
        from keylane.adapters.issuers.verifier import KeysNeeded  # noqa: PLC0415 (loaded with the issuers)

        try:
            return self._issued.find_at_once(authorization, token)
        except BadToken as error:
            raise NotAuthorized(str(error)) from error
        except KeysNeeded as needed:
            if self._clock.now_ms() / 1000 >= request.access.until_s:
                raise NotAuthorized("the token has expired") from None
            self._issued.fetch(needed.issuer)
            return None

    def _admit(self, request: ReceivedRequest, authorization: str, found: IssuedAccess | None) -> Access:
        """Return who sends a request; count and log what was decided. Raises NotAuthorized, NotAllowed."""
        asked, decision = self._decide(request, authorization, found)
        if found is not None:
            self.count(decision)
        if self.is_audited:
            audit(decision, asked, request.target)
        if not decision.is_allowed:
            raise NotAllowed
        return (
            Access(decision.caller, decision.scope)
            if found is None
            else Access(decision.caller, decision.scope, found.until_s)
        )

    def _decide(
        self, request: ReceivedRequest, authorization: str, found: IssuedAccess | None
    ) -> tuple[AccessRequest, Decision]:
        """Return whether a request is granted. Raises NotAuthorized."""
        # The query is parsed for those who have a token.
        is_known = found is not None or grant_of(self._policy.grants, authorization) is not None
        asked = AccessRequest(request.method, request.path, request.query if is_known else {}, authorization)
        if found is None:
            return asked, decide(self._policy.grants, asked, request.target)
        return asked, found.decide(asked, request.target)

    def count(self, decision: Decision) -> None:
        """Count a decision on the token of an issuer, by the rules that decided."""
        result = "allowed" if decision.is_allowed else "denied"
        for rule in decision.rules or (NO_RULE,):
            self.meter.count("AccessDecisions", 1, rule, result)


def _authorization_of(request: ReceivedRequest) -> str:
    """Return the header with the token."""
    headers = request.last
    authorization: str = headers.get("authorization", "")
    if not authorization and (key := headers.get("x-api-key")):
        authorization = f"Bearer {key}"
    return authorization
