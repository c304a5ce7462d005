"""The net around callers that rules of the access policy apply to: what any route must refuse them.

The router asks before it parses anything of a request with a scope. Which rows a caller sees of a topic that
they may read is decided beneath the routes: `keylane.query.row_scopes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from keylane.api.http.common_parameters import EVENT
from keylane.errors import OutsideScope
from keylane.model.routes import Names, PermissionKind

if TYPE_CHECKING:
    from keylane.access.scopes import Scope
    from keylane.api.http.request import Request
    from keylane.model.routes import Permission, Target

NOT_FOR_SCOPES = "rules of the access policy apply to this caller, and none can permit this route"


def check_scope(
    scope: Scope, request: Request, target: Target, permission: Permission, *, takes_events: bool
) -> None:
    """Raise OutsideScope where the caller's scope refuses a request, whatever rows there are.

    That is: a topic or view that the path or the query names is in none of the rules; or change events are
    asked for, which have more than the row that a rule permits. `takes_events`: whether they can be.
    """
    kind, place = permission
    names = target.names(request.query) or ()
    for name in map(unquote, names) if place is Names.PATH else names:
        check_named(scope, kind, name)
        if takes_events and EVENT.of(request):
            _check_events(scope, name)


def check_named(scope: Scope, kind: PermissionKind, name: str) -> None:
    """Raise OutsideScope for a topic or view that none of the caller's rules is about."""
    if not scope.rules_for(kind, name):
        what = "view" if kind is PermissionKind.VIEWS else "topic"
        done = "written" if kind is PermissionKind.WRITE else "read"
        raise OutsideScope(
            f"no rule of the access policy permits {what} {name[:249]!r} to be {done} by this caller"
        )


def _check_events(scope: Scope, topic: str) -> None:
    if any(rows.where or rows.fields is not None for rows in scope.reads(topic)):
        raise OutsideScope(
            "a change event has more than the row that the caller's rules show: leave out event", EVENT.name
        )
