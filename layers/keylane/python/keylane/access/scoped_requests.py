"""What a scope says of a request before it is answered: whether any rule names what the request is about.

Which rows of it the caller may have, the application decides.
"""

from dataclasses import replace

from keylane.access.grants import Grant, Need
from keylane.access.scopes import PermittedRows, Scope, ScopeRule
from keylane.model.routes import PermissionKind


def permits(scope: Scope, need: Need) -> bool:
    """Return whether some rule names each topic or view of the need, for its kind.

    A request about all of them, or that names them in its body alone, is never permitted: no rule says which
    of their rows that would be.
    """
    return need.names is not None and all(scope.rules_for(need.kind, name) for name in need.names)


def scope_of_grant(grant: Grant) -> Scope:
    """Return what a grant permits as a scope: of a request that names its topics in its body."""
    rule = ScopeRule(PermittedRows(grant.name), grant.read, grant.write, grant.views)
    return Scope(grant.name, (rule,))


def rule_names(scope: Scope, need: Need) -> tuple[str, ...]:
    """Return the names of the rules that decide on a need, in the policy's order."""
    found = {rule.rows.rule for name in need.names or () for rule in scope.rules_for(need.kind, name)}
    return tuple(rule.rows.rule for rule in scope.rules if rule.rows.rule in found)


def narrow(scope: Scope, need: Need) -> Scope:
    """Return the scope with the rules alone that name what a request is about, whatever they let do with it.

    A request of a topic may read it and write it, so both kinds of rules stay.
    """
    names = need.names or ()
    kinds = (
        (PermissionKind.VIEWS,)
        if need.kind is PermissionKind.VIEWS
        else (PermissionKind.READ, PermissionKind.WRITE)
    )
    named = [rule for kind in kinds for name in names for rule in scope.rules_for(kind, name)]
    return replace(scope, rules=tuple(rule for rule in scope.rules if rule in named))
