"""Answers of the server itself: requests that no operation sees. The problem types are API Gateway's."""

from keylane.api.http.problems import BODY_TOO_LARGE, FORBIDDEN, UNAUTHORIZED, Problem, kind_of, problem
from keylane.api.http.response import Response
from keylane.errors import BadRequest, IssuerUnavailable, SnapshotOutdated
from keylane_server.access import NotAllowed, NotAuthorized
from keylane_server.admission import AddressBusy, Overloaded
from keylane_server.bodies import BodyBroken, BodyTimeout, BodyTooLarge
from keylane_server.child_process import ChildEnded
from keylane_server.sites import ForeignSite

OVERLOADED = Problem(503, "overloaded", "The server has as many requests as it can take")
THROTTLED = Problem(429, "throttled", "Too many requests")
BODY_TIMEOUT = Problem(408, "body-timeout", "The request's body did not arrive in time")
BAD_REQUEST = kind_of(BadRequest(""))
ISSUER_UNAVAILABLE = kind_of(IssuerUnavailable(""))
SNAPSHOT_OUTDATED = kind_of(SnapshotOutdated("", ""))
TIMEOUT = Problem(504, "timeout", "The request took too long")
RETRY_AFTER_S = 1
ISSUER_RETRY_AFTER_S = 60
"""An issuer's keys are asked for once a minute."""


class ServerStops(Exception):
    """The request still runs when the time for a stop is over."""


_PROBLEMS: dict[type[Exception], tuple[Problem, str, dict[str, str]]] = {
    NotAuthorized: (UNAUTHORIZED, "{error}", {"WWW-Authenticate": "Bearer"}),
    IssuerUnavailable: (ISSUER_UNAVAILABLE, "{error}", {"Retry-After": str(ISSUER_RETRY_AFTER_S)}),
    SnapshotOutdated: (SNAPSHOT_OUTDATED, "{error}", {}),
    NotAllowed: (FORBIDDEN, "the token does not grant this request", {}),
    ForeignSite: (FORBIDDEN, "{error}, and the server takes no tokens", {}),
    Overloaded: (OVERLOADED, "{error}: try again in a second", {"Retry-After": str(RETRY_AFTER_S)}),
    AddressBusy: (THROTTLED, "{error}: try again in a second", {"Retry-After": str(RETRY_AFTER_S)}),
    BadRequest: (BAD_REQUEST, "{error}", {}),
    BodyBroken: (BAD_REQUEST, "{error}", {}),
    BodyTooLarge: (BODY_TOO_LARGE, "{error}", {}),
    ServerStops: (TIMEOUT, "the server stops: a write may have happened", {}),
    ChildEnded: (TIMEOUT, "the process that takes large bodies has ended: a write may have happened", {}),
    BodyTimeout: (BODY_TIMEOUT, "the rest of the body did not arrive", {}),
}
REFUSED = tuple(_PROBLEMS)


def refusal_of(error: Exception, request_id: str) -> Response[str]:
    """Return the problem document for an error of REFUSED."""
    kind, detail, headers = _PROBLEMS[type(error)]
    return problem(kind, detail.format(error=error), request_id, headers=headers)
