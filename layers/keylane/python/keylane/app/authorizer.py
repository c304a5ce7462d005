"""Which token may do what, by the policy of KEYLANE_ACCESS: for Lambda's authorizer and for the server.

A token of the policy's list has a grant. A JWT of one of its issuers has a scope instead: here only whether
some rule names what the request is about, and the application decides on its rows.
"""

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple, Protocol

from keylane.access.grants import (
    LEAST_CHARACTERS,
    Grant,
    grant_of,
    need_of,
    short_token_of,
    why_unknown,
)
from keylane.access.policy import Policy, scope_of
from keylane.access.scoped_requests import narrow, permits, rule_names, scope_of_grant
from keylane.access.scopes import Scope
from keylane.access.tokens import BadToken, VerifiedToken, jwt_in
from keylane.config.api import ApiSettings
from keylane.config.table import ACCESS
from keylane.model.routes import Names, Target, find
from keylane.wiring.application import read_api_settings
from keylane.wiring.authorizer import BlockingVerifier, PolicySource
from keylane.wiring.runtime import Runtime

_log = logging.getLogger("keylane")
_audit_log = logging.getLogger("keylane.audit")
_audit_log.setLevel(logging.INFO)
AUDIT = "KEYLANE_ACCESS_AUDIT"
AUDITED_NAMES, NAME_CHARACTERS = 20, 249
"""Of the topics that a request names, in a line of the audit: a client chooses them."""


class NotAuthorized(Exception):
    """The request has no known token; the text says what is wrong with it."""


class AccessRequest(NamedTuple):
    """What is asked for: as the fields of a `Request`, with the header `Authorization` alone."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    authorization: str


class Decision(NamedTuple):
    """Whose token it is, and whether it grants the request.

    `scope`: what a JWT permits, nothing where the request is refused; None for a token with a grant, unless
    the request names its topics in its body, where the application decides.
    `rules`: the names of the rules that decided. `until_s`: when the JWT expires, in seconds since 1970.
    """

    caller: str
    is_allowed: bool
    scope: Scope | None = None
    rules: tuple[str, ...] = ()
    until_s: float = math.inf


class TokenCheck(Protocol):
    """Knows what an issuer has signed."""

    def verify(self, policy: Policy, token: str) -> VerifiedToken:
        """Return what a token says. Raises BadToken, IssuerUnavailable."""


def build(runtime: Runtime, environment: Mapping[str, str]) -> "Authorizer":
    """Return what decides. The policy is read by the first request."""
    source = PolicySource(environment, runtime.clock)
    verifier = BlockingVerifier(runtime.clock)
    return Authorizer(
        source.current,
        verifier,
        cache(partial(read_api_settings, environment)),
        cache(partial(ACCESS.read, environment, AUDIT)),
    )


class Authorizer:
    """Decides by the policy that `read_policy` returns. What the functions raise, it raises."""

    def __init__(
        self,
        read_policy: Callable[[], Policy],
        verifier: TokenCheck,
        read_settings: Callable[[], ApiSettings],
        is_audited: Callable[[], bool],
    ) -> None:
        self._read_policy = read_policy
        self._verifier = verifier
        self._read_settings = read_settings
        self._is_audited = is_audited

    def decide(self, request: AccessRequest) -> Decision:
        """Return whether the token grants the request. Raises NotAuthorized, IssuerUnavailable."""
        target = find(request.method, self._read_settings().path_of(request.path))
        policy = self._read_policy()
        decision = self._decide(policy, request, target)
        if self._is_audited():
            audit(decision, request, target)
        return decision

    def _decide(self, policy: Policy, request: AccessRequest, target: Target) -> Decision:
        token = issued_token(policy, request.authorization)
        if token is None:
            return decide(policy.grants, request, target)
        try:
            verified = self._verifier.verify(policy, token)
        except BadToken as error:
            raise NotAuthorized(str(error)) from error
        found = decide_scoped(scope_of(policy, verified.claims), request, target)
        return found._replace(until_s=verified.expires_s)


def issued_token(policy: Policy, authorization: str) -> str | None:
    """Return the token of an Authorization header if an issuer has to have signed it."""
    if not policy.issuers or grant_of(policy.grants, authorization) is not None:
        return None
    return jwt_in(authorization)


def decide(grants: Mapping[str, Grant], request: AccessRequest, target: Target) -> Decision:
    """Return whether the token grants a request that leads there. Raises NotAuthorized."""
    grant = grant_of(grants, request.authorization)
    if grant is None:
        if name := short_token_of(grants, request.authorization):
            _log.error("the token of %s has fewer than %d characters: it is refused", name, LEAST_CHARACTERS)
        raise NotAuthorized(why_unknown(request.authorization))
    need = need_of(target, request.query)
    is_allowed = need is not None and grant.allows(need)
    if not is_allowed:
        _log_refusal(grant.name, request, target)
    scope = scope_of_grant(grant) if is_allowed and _is_decided_later(target) else None
    return Decision(grant.name, is_allowed, scope)


def decide_scoped(scope: Scope, request: AccessRequest, target: Target) -> Decision:
    """Return whether some rule of a scope names all that a request is about, and these rules as its scope.

    On each host a request has these rules alone, so a cursor of one is a cursor of the other.
    """
    need = need_of(target, request.query)
    is_allowed = need is not None and permits(scope, need)
    if need is None or not is_allowed:
        _log_refusal(scope.caller, request, target)
        return Decision(scope.caller, False, Scope(scope.caller))
    own = scope if _is_decided_later(target) else narrow(scope, need)
    return Decision(scope.caller, True, own, rule_names(scope, need))


def _is_decided_later(target: Target) -> bool:
    """Return whether a request names its topics in its body, which only the application reads."""
    return target.route is not None and target.route.permission.names is Names.BODY


def audit(decision: Decision, request: AccessRequest, target: Target) -> None:
    """Log a decision as a line of JSON: who, by which rules, what, and the result; no key and no value."""
    need = need_of(target, request.query)
    names = None if need is None or need.names is None else need.names[:AUDITED_NAMES]
    line = {
        "caller": decision.caller,
        "rules": decision.rules,
        "route": target.route.name if target.route else None,
        "method": request.method[:20],
        "kind": need.kind.value if need else None,
        "names": None if names is None else [name[:NAME_CHARACTERS] for name in names],
        "result": "allowed" if decision.is_allowed else "denied",
    }
    _audit_log.info("%s", json.dumps(line))


def _log_refusal(caller: str, request: AccessRequest, target: Target) -> None:
    _log.warning("%s may not %s %s", caller, request.method[:20], target.path[:300])
