"""Who may do what where API Gateway has verified the token with a user pool: `Authorization=COGNITO`.

There is no authorizer function then. Each function decides by the same policy and the same rules, with the
claims of the event (`access/pool_claims.py`), and does not verify the signature again.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from keylane.access.pool_claims import confirmed
from keylane.access.tokens import BadToken, VerifiedToken, check_claims, parse_token
from keylane.api.http.problems import FORBIDDEN, UNAUTHORIZED, problem
from keylane.app.authorizer import AUDIT, AccessRequest, Authorizer, NotAuthorized
from keylane.config.table import ACCESS, API
from keylane.errors import SettingsError
from keylane.wiring.application import read_api_settings
from keylane.wiring.authorizer import PolicySource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.access.policy import Policy
    from keylane.api.http.request import Request
    from keylane.api.http.response import Response
    from keylane.ports import Clock
    from keylane.wiring.runtime import Runtime

_BEARER = "Bearer "


class PoolGuard:
    """Admits requests with tokens of KEYLANE_USER_POOL; an `api.http.gateway.Guard`.

    The settings and the policy are read by the first request.
    """

    def __init__(self, runtime: Runtime, environment: Mapping[str, str]) -> None:
        self._read_pool = cache(partial(API.read, environment, "KEYLANE_USER_POOL"))
        self._clock = runtime.clock
        self._source = PolicySource(environment, runtime.clock)
        self._read_settings = cache(partial(read_api_settings, environment))
        self._is_audited = cache(partial(ACCESS.read, environment, AUDIT))

    def admit(self, request: Request, event: Mapping[str, Any]) -> Request | Response[str]:
        """Return the request with what its caller may see, or the refusal.

        Raises SettingsError, SettingsUnavailable.
        """
        verified = _PoolTokens(self._issuer(), _shown_claims(event), self._clock)
        authorizer = Authorizer(self._read_policy, verified, self._read_settings, self._is_audited)
        try:
            authorization = _only_authorization(event)
            found = authorizer.decide(
                AccessRequest(request.method, request.path, request.query, authorization)
            )
        except NotAuthorized as error:
            return problem(UNAUTHORIZED, str(error), request.id, headers={"WWW-Authenticate": "Bearer"})
        if not found.is_allowed:
            return problem(FORBIDDEN, "the token does not grant this request", request.id)
        until = request.deadline and request.deadline.or_at_ms(found.until_s * 1000)
        return request._replace(scope=found.scope, deadline=until)

    def _issuer(self) -> str:
        return issuer_of_pool(self._read_pool())

    def _read_policy(self) -> Policy:
        policy, issuer = self._source.current(), self._issuer()
        if policy.issuer_of(issuer) is None:
            raise SettingsError("KEYLANE_ACCESS", f"has no issuer {issuer}, the pool of KEYLANE_USER_POOL")
        return policy


class _PoolTokens:
    """Takes a token at the word of the event that came with it; a `TokenCheck`."""

    def __init__(self, issuer: str, shown: Mapping[str, Any], clock: Clock) -> None:
        self._issuer = issuer
        self._shown = shown
        self._clock = clock

    def verify(self, policy: Policy, token: str) -> VerifiedToken:
        """Return what the event confirms of a token. Raises BadToken."""
        parsed = parse_token(token)
        claims = confirmed(parsed.claims, self._shown)
        issuer = policy.issuer_of(claims.get("iss"))
        if issuer is None or issuer.name != self._issuer:
            raise BadToken("the token is not one that API Gateway has verified with the user pool")
        if parsed.algorithm not in issuer.algorithms:
            raise BadToken("the token's algorithm is not accepted of its issuer")
        return VerifiedToken(claims, check_claims(claims, issuer, self._clock.now_ms() / 1000))


def issuer_of_pool(arn: str) -> str:
    """Return the `iss` of a pool's tokens. `arn`: arn:PARTITION:cognito-idp:REGION:ACCOUNT:userpool/ID."""
    _, partition, _, region, _, pool = arn.split(":")
    suffix = ".cn" if partition == "aws-cn" else ""
    return f"https://cognito-idp.{region}.amazonaws.com{suffix}/{pool.removeprefix('userpool/')}"


def _shown_claims(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the claims that API Gateway has put into an event, none where it has verified nothing."""
    context: Any = event.get("requestContext")
    for name in ("authorizer", "claims"):
        context = context.get(name) if isinstance(context, dict) else None
    return context if isinstance(context, dict) else {}


def _only_authorization(event: Mapping[str, Any]) -> str:
    """Return the token's header. Raises NotAuthorized for several: API Gateway has verified one of them.

    It takes a token without `Bearer`, too.
    """
    several = event.get("multiValueHeaders") or {
        name: [value] for name, value in (event.get("headers") or {}).items()
    }
    found = [each for name, values in several.items() if name.lower() == "authorization" for each in values]
    if len(found) != 1:
        raise NotAuthorized("the request has no Authorization header, or several")
    authorization = str(found[0]).strip()
    return authorization if " " in authorization else _BEARER + authorization
