"""Which pages of the web a server without tokens answers: whoever reaches it may do anything.

A browser is inside, and runs what pages outside say. It sends their simple requests (a form's, `text/plain`)
to any address, with their `Origin`; and a name of theirs may lead to this address, so that a page is taken
for one of the server's own.

1. A write is refused that another site's page sends: by `Sec-Fetch-Site`, else by `Origin` and `Host`.
2. A server that listens to its own machine alone is asked by the machine's names, or by an address.

Pages of KEYLANE_CORS_ORIGIN may do both, and a proxy on the machine may pass the host of that origin on.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from keylane.api.http.request import is_host
from keylane.model.routes import PRODUCE
from keylane_server.received import ReceivedRequest

ANY = "*"
_OWN_SITE = {"same-origin", "same-site", "none"}
_LOCAL = re.compile(
    r"(?:[\w-]+|[\w-]+\.localhost|host\.docker\.internal|\d{1,3}(?:\.\d{1,3}){3}|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?",
    re.ASCII | re.IGNORECASE,
)
"""An address, or a name that nobody can own in the DNS of the web."""


class ForeignSite(Exception):
    """A page of another site sends the request; the text says how that is known."""


class OwnSites:
    """The hosts and pages of a server without tokens. `address`: on which it listens."""

    def __init__(self, cors_headers: Mapping[str, str], address: str) -> None:
        self._origin = cors_headers.get("Access-Control-Allow-Origin", "")
        self._host = urlsplit(self._origin).netloc
        self._is_local = _is_loopback(address) and self._origin != ANY

    def is_host(self, host: str) -> bool:
        """Return whether a Host header's value is a host by which the server may be asked."""
        return is_host(host) and (not self._is_local or _is_local(host) or host == self._host)

    def check(self, request: ReceivedRequest) -> None:
        """Raise ForeignSite for a request that a page of another site has sent."""
        host = request.headers.get("host", "")
        if host and not self.is_host(host):
            raise ForeignSite("the server's host is not the one of the request")
        origin = request.headers.get("origin")
        if (
            request.target.route is None
            or request.target.function != PRODUCE
            or origin is None
            or self._origin in (ANY, origin)
        ):
            return
        site = request.headers.get("sec-fetch-site")
        if site not in _OWN_SITE if site else urlsplit(origin).netloc != host:
            raise ForeignSite("a page of another site sends the request")


def _is_loopback(address: str) -> bool:
    """Return whether only programs of the same machine reach an address to listen on."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


@lru_cache(1_024)
def _is_local(host: str) -> bool:
    return _LOCAL.fullmatch(host) is not None
