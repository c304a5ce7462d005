"""Who sends a request, as its host has verified it; what a client says of itself does not count.

    authorizer   the authorizer's principalId, or `sub` of a JWT's or Cognito's claims
    iam          the ARN of the IAM user or role that signed the request; of an assumed role without the name
                 of its session, which a caller may choose
    api-key      the id of the API key, never the key itself
    source-ip    the address that the connection came from; never X-Forwarded-For, which anyone can set

They are tried in this order, unless the settings name others.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

SOURCE_IP = "source-ip"
SOURCES = ("authorizer", "iam", "api-key", SOURCE_IP)
"""In the order in which they are tried."""

ANONYMOUS = "anonymous"


class Sender(Protocol):
    """Who sends a request."""

    def name(self, sources: Sequence[str] = SOURCES) -> str:
        """Return the first known source with its value, `iam:arn:aws:iam::1:user/ann`, else ANONYMOUS."""


class Caller(NamedTuple):
    """What is known of a request's sender; empty strings where nothing is."""

    principal: str = ""
    arn: str = ""
    api_key_id: str = ""
    source_ip: str = ""

    def name(self, sources: Sequence[str] = SOURCES) -> str:
        """See `Sender.name`."""
        known = dict(zip(SOURCES, (self.principal, _without_session(self.arn), *self[2:]), strict=True))
        return next((f"{source}:{known[source]}" for source in sources if known[source]), ANONYMOUS)


def _without_session(arn: str) -> str:
    """`arn:aws:sts::1:assumed-role/NAME/SESSION` without the session; other ARNs as they are."""
    return arn.rpartition("/")[0] if arn.split(":", 5)[-1].startswith("assumed-role/") else arn
