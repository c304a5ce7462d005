"""Who sends a request, as API Gateway has verified it; what a client says of itself does not count.

    authorizer   the authorizer's principalId, or `sub` of a JWT's or Cognito's claims
    iam          the ARN of the IAM user or role that signed the request; of an assumed role without the name
                 of its session, which a caller may choose
    api-key      the id of the API key, never the key itself
    source-ip    the address that the connection came from; never X-Forwarded-For, which anyone can set

They are tried in this order, unless the settings name others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SOURCE_IP = "source-ip"
SOURCES = ("authorizer", "iam", "api-key", SOURCE_IP)
"""In the order in which they are tried."""

ANONYMOUS = "anonymous"


def caller_of(event: Mapping[str, Any], sources: Sequence[str] = SOURCES) -> str:
    """Return the first known source with its value, `iam:arn:aws:iam::1:user/ann`, else ANONYMOUS."""
    for source in sources:
        found = _READERS[source](_object(event, "requestContext"))
        if found and isinstance(found, str):
            return f"{source}:{found}"
    return ANONYMOUS


def _principal(context: Mapping[str, Any]) -> Any:
    authorizer = _object(context, "authorizer")
    return authorizer.get("principalId") or _object(authorizer, "claims").get("sub")


def _without_session(arn: Any) -> Any:
    """`arn:aws:sts::1:assumed-role/NAME/SESSION` without the session; other ARNs as they are."""
    if isinstance(arn, str) and arn.split(":", 5)[-1].startswith("assumed-role/"):
        return arn.rpartition("/")[0]
    return arn


def _object(source: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = source.get(name)
    return found if isinstance(found, dict) else {}


_READERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "authorizer": _principal,
    "iam": lambda context: _without_session(_object(context, "identity").get("userArn")),
    "api-key": lambda context: _object(context, "identity").get("apiKeyId"),
    SOURCE_IP: lambda context: _object(context, "identity").get("sourceIp"),
}
