"""`KEYLANE_LOGIN`: the issuer of OpenID Connect with which people log in to the console and the command line.

    {"issuer": "https://id.example.com/", "client_id": "keylane", "scope": "openid", "token": "access"}

`token`: which of the issuer's tokens is sent to the API. `authorization_endpoint` and `token_endpoint`: of an
issuer whose endpoints are not on the host of its name; else clients read them at its
`.well-known/openid-configuration`. The client is a public one: it has no secret.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from keylane.config.access_rules import is_safe_url
from keylane.config.table import ACCESS
from keylane.errors import SettingsError, ask_meant

VARIABLE = "KEYLANE_LOGIN"
TOKENS = ("access", "id")
ENDPOINTS = ("authorization_endpoint", "token_endpoint")
_DEFAULTS = {"scope": "openid", "token": TOKENS[0]}
_PARTS = {"issuer", "client_id", *_DEFAULTS, *ENDPOINTS}
_TEXT = re.compile(r"[ -~]{1,500}")
_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]+")
"""What stands in a Content-Security-Policy: nothing that would end a part of it."""


class Login(NamedTuple):
    """What a client needs to log in, as it is shown to anyone, and the origins that the console asks."""

    document: dict[str, str]
    origins: tuple[str, ...]


def read_login(environment: Mapping[str, str]) -> Login | None:
    """Return how people log in, None where nothing is set. Raises SettingsError."""
    given: dict[str, Any] = ACCESS.read(environment, VARIABLE)
    if not given:
        return None
    for name, value in given.items():
        if name not in _PARTS:
            raise SettingsError(VARIABLE, f"has the unknown part {name[:40]!r}{ask_meant(name, _PARTS)}")
        if not isinstance(value, str) or not _TEXT.fullmatch(value):
            raise SettingsError(VARIABLE, f"has a {name} that is not a text of ASCII characters")
    found: dict[str, str] = _DEFAULTS | given
    _check(found)
    return Login(found, (_origin_of(found.get("token_endpoint", found["issuer"])),))


def _check(found: Mapping[str, str]) -> None:
    """Raise SettingsError for parts that are wrong, or wrong together."""
    for name in ("issuer", "client_id"):
        if name not in found:
            raise SettingsError(VARIABLE, f"has no {name}")
    if found["token"] not in TOKENS:
        raise SettingsError(VARIABLE, f"has a token that is not one of {', '.join(TOKENS)}")
    if "openid" not in found["scope"].split(" "):
        raise SettingsError(VARIABLE, "has a scope without openid")
    if len(found.keys() & set(ENDPOINTS)) == 1:
        raise SettingsError(VARIABLE, f"has either both of {', '.join(ENDPOINTS)}, or none")
    for name in ("issuer", *ENDPOINTS):
        if name in found and not _is_address(found[name]):
            raise SettingsError(
                VARIABLE, f"has a {name} that is not an https URL (http only to this machine)"
            )


def _is_address(url: str) -> bool:
    return is_safe_url(url) and _HOST.fullmatch(urlsplit(url).netloc) is not None


def _origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
