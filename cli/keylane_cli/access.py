"""`keylane access explain`: which rule of the access policy decides on a request, and why."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, unquote

import click

from keylane_client.cli.printing import printable
from keylane_local import env_file
from keylane_local.errors import BadInput, StackError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from keylane.access.policy import Policy
    from keylane.access.scopes import PermittedRows, Scope
    from keylane.app.authorizer import AccessRequest
    from keylane.model.routes import Target

STANDARD_INPUT = "-"
ALLOWED, DENIED = 0, 1


class _Explanation(NamedTuple):
    """Lines for people, and whether the request is allowed."""

    lines: list[str]
    is_allowed: bool


@click.group()
def access() -> None:
    """Look at the access policy of KEYLANE_ACCESS."""


@access.command()
@click.argument("token")
@click.argument("method")
@click.argument("path")
def explain(token: str, method: str, path: str) -> None:
    """Say which rule decides on a request with TOKEN, such as GET /topics/orders/keys/7, and why.

    TOKEN is not printed; - reads it from standard input. The policy is that of KEYLANE_ACCESS, here or in the
    keylane.env of this folder. The exit code is 1 if the request is refused.
    """
    from keylane.errors import KeylaneError  # noqa: PLC0415 - its imports take long

    if token == STANDARD_INPUT:
        token = sys.stdin.readline() if sys.stdin else ""  # it may be closed
    environment = {**env_file.read(env_file.beside(None)), **os.environ}
    try:
        found = _explain(environment, token.strip().removeprefix("Bearer ").strip(), method.upper(), path)
    except KeylaneError as error:
        raise StackError(str(error)) from error
    for line in found.lines:
        click.echo(printable(line))
    sys.exit(ALLOWED if found.is_allowed else DENIED)


def _explain(environment: Mapping[str, str], token: str, method: str, path: str) -> _Explanation:
    from keylane.access.tokens import BadToken, parse_token  # noqa: PLC0415 - as above
    from keylane.adapters.aws import references  # noqa: PLC0415
    from keylane.app.authorizer import AccessRequest, NotAuthorized, decide, issued_token  # noqa: PLC0415
    from keylane.config.access import read_policy  # noqa: PLC0415
    from keylane.model.routes import find  # noqa: PLC0415
    from keylane.wiring.application import read_api_settings  # noqa: PLC0415

    policy = read_policy(references.resolved(environment))
    path, _, query = path.partition("?")
    target = find(method, read_api_settings(environment).path_of(path))
    if target.route is None:
        raise BadInput(f"no route takes {method[:20]} {path[:200]}")
    asked = AccessRequest(method, path, parse_qs(query, keep_blank_values=True), f"Bearer {token}")
    signed = issued_token(policy, asked.authorization)
    if signed is None:
        try:
            decision = decide(policy.grants, asked, target)
        except NotAuthorized as error:
            return _Explanation([f"401: {error}"], is_allowed=False)
        result = "allowed" if decision.is_allowed else "403: its grant names no such topic for this"
        return _Explanation([f"the token is one of the list: {decision.caller}", result], decision.is_allowed)
    try:
        claims = parse_token(signed).claims
    except BadToken as error:
        return _Explanation([f"401: {error}"], is_allowed=False)
    fault, how = _verify(policy, signed)
    lines = [f"issuer {claims.get('iss')!r}, subject {claims.get('sub')!r}", f"signature and claims: {how}"]
    if not isinstance(claims.get("sub"), str) or policy.issuer_of(claims.get("iss")) is None:
        return _Explanation([*lines, f"401: {fault}"], is_allowed=False)
    return _explain_rules(policy, claims, asked, target, _Explanation(lines, not fault), fault)


def _verify(policy: Policy, token: str) -> tuple[str, str]:
    """Return why a token is refused, "" if it is not, and how that is known."""
    from keylane.access.tokens import BadToken  # noqa: PLC0415 - its imports take long
    from keylane.errors import IssuerUnavailable  # noqa: PLC0415
    from keylane.ports import Clock  # noqa: PLC0415
    from keylane.wiring.authorizer import BlockingVerifier  # noqa: PLC0415

    try:
        BlockingVerifier(Clock()).verify(policy, token)
    except BadToken as error:
        return str(error), f"refused: {error}"
    except IssuerUnavailable as error:
        return "", f"NOT verified here: {error}"
    return "", "verified"


def _explain_rules(
    policy: Policy,
    claims: Mapping[str, Any],
    asked: AccessRequest,
    target: Target,
    head: _Explanation,
    fault: str,
) -> _Explanation:
    from keylane.access.policy import scope_of, why_not  # noqa: PLC0415 - its imports take long
    from keylane.app.authorizer import decide_scoped  # noqa: PLC0415

    lines = head.lines
    scope = scope_of(policy, claims)
    decision = decide_scoped(scope, asked, target)
    for rule in policy.rules:
        reason = why_not(rule, claims)
        if not reason and rule.name not in decision.rules:
            reason = (
                ""
                if decision.is_allowed and not decision.rules
                else "it names no such topic or view for this"
            )
        lines.append(f"rule {rule.name}: {reason or 'applies'}")
    for name in decision.rules:
        lines += _rows_lines(scope, name, asked, target)
    if fault:
        return _Explanation([*lines, f"401: {fault}"], is_allowed=False)
    refusal = "no rule that applies names all that the request is about"
    if decision.is_allowed:
        refusal = _refusal_by_route(scope, asked, target) if decision.rules else ""
    if refusal:
        return _Explanation([*lines, f"403: {refusal}"], is_allowed=False)
    result = f"allowed by {', '.join(decision.rules) or 'any token'}: the rows decide further"
    return _Explanation([*lines, result], is_allowed=True)


def _refusal_by_route(scope: Scope, asked: AccessRequest, target: Target) -> str:
    """Return why a route refuses a caller whose rules name what is asked, whatever rows; else ""."""
    from keylane.api.http.common_parameters import AS_OF  # noqa: PLC0415 - its imports take long
    from keylane.api.http.request import Request  # noqa: PLC0415
    from keylane.app import explore, produce, query  # noqa: PLC0415
    from keylane.errors import OutsideScope  # noqa: PLC0415

    route = target.route
    assert route is not None  # noqa: S101 - for the type checker
    operation = (query.OPERATIONS | produce.OPERATIONS | explore.OPERATIONS)[route.name]
    try:
        operation.check_scope(Request(asked.method, asked.path, asked.query, {}, scope=scope), target)
    except OutsideScope as error:
        return str(error)
    if route.name == "get_history" or AS_OF.name in asked.query:
        names = map(unquote, target.names(asked.query) or ())
        if any(all(rows.where for rows in scope.reads(name)) for name in names):
            return "the rules that apply compare fields, and earlier records are kept without them"
    return ""


def _rows_lines(scope: Scope, name: str, asked: AccessRequest, target: Target) -> Iterator[str]:
    """Yield what a rule permits of rows, and whether the key of the path is one of them."""
    [rows] = [each.rows for each in scope.rules if each.rows.rule == name]
    if rows.key is not None:
        kind = "keys that begin with" if rows.key.is_prefix else "the key"
        yield f"  {name}: {kind} {rows.key.text!r}{_of_path(rows, asked, target)}"
    for field, values in rows.where:
        yield f"  {name}: rows whose {field} is {' or '.join(map(repr, values))}"
    if rows.fields is not None:
        yield f"  {name}: of values {', '.join(rows.fields)}"


def _of_path(rows: PermittedRows, asked: AccessRequest, target: Target) -> str:
    from keylane.api.http.common_parameters import parse_key  # noqa: PLC0415 - its imports take long
    from keylane.api.http.request import Request  # noqa: PLC0415

    route = target.route
    if route is None or "{key}" not in route.path or rows.key is None:
        return ""
    raw = target.parts[[part for part in route.path.split("/") if part[:1] == "{"].index("{key}")]
    key, own = parse_key(Request(asked.method, asked.path, asked.query, {}), raw), rows.key.text.encode()
    is_one = key.startswith(own) if rows.key.is_prefix else key == own
    return f": {key.decode(errors='backslashreplace')!r} is {'one' if is_one else 'none'} of them"
