"""The tokens of `keylane login`: a file that its owner alone may read, with one login for each API.

    $XDG_CONFIG_HOME/keylane/logins.json    {"https://api.example.org/v1": {"provider": [], "tokens": []}}

A token is sent to the API that it was got for, and to no other. It is renewed shortly before its end, if the
issuer gave the means.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from keylane_client.cli.errors import BadArgument
from keylane_client.cli.oidc import LoginFailed, Provider, Tokens, renew
from keylane_client.cli.printing import without_login

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

FILE = "logins.json"
EARLY_S = 30.0
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def logins_file() -> Path:
    """Return where logins are kept: the user's folder of settings, by the habits of the system."""
    return Path(click.get_app_dir("keylane", force_posix=False)) / FILE


def kept_token(url: str) -> str | None:
    """Return the token of the login at an API, None without one. Raises BadArgument if it has ended."""
    if not logins_file().exists():
        return None
    found = _read().get(_name(url))
    if found is None:
        return None
    return str(found["tokens"][0]) if _is_good(found) else _renewed(url)


def keep_login(url: str, provider: tuple[str, ...], tokens: tuple[Any, ...]) -> None:
    """Keep a login, instead of the one before."""
    _write({**_read(), _name(url): {"provider": list(provider), "tokens": list(tokens)}})


def forget_login(url: str) -> bool:
    """Forget a login; False if there is none."""
    logins = _read()
    if logins.pop(_name(url), None) is None:
        return False
    _write(logins)
    return True


def _renewed(url: str) -> str | None:
    """Return the token, renewed if it ends soon: issuers take a refresh token once, and it may be in use."""
    with _alone():
        found = _read().get(_name(url))
        if found is None or _is_good(found):
            return None if found is None else str(found["tokens"][0])
        return _renew(url, Provider(*found["provider"]), Tokens(*found["tokens"]))


def _is_good(found: dict[str, Any]) -> bool:
    return bool(found["tokens"][1] - time.time() > EARLY_S)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep other commands from renewing a token meanwhile; not on Windows."""
    if fcntl is None:
        yield
        return
    folder = os.open(logins_file().parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _renew(url: str, provider: Provider, tokens: Tokens) -> str:
    if tokens.refresh_token:
        try:
            tokens = renew(provider, tokens)
        except LoginFailed as error:
            if tokens.expires_s <= time.time():
                raise BadArgument(f"the login has ended, and {error}: `keylane login`") from error
        else:
            keep_login(url, provider, tokens)
    if tokens.expires_s <= time.time():
        raise BadArgument(
            f"the login at {without_login(_name(url))} has ended: `keylane login` again, or `keylane logout`"
        )
    return tokens.token


def _name(url: str) -> str:
    return url.rstrip("/")


def _read() -> dict[str, Any]:
    file = logins_file()
    try:
        with file.open(encoding="utf-8") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if os.name == "posix" and mode & _OF_OTHERS:
                raise BadArgument(f"others may read {file}: chmod 600 it, and `keylane login` again")
            found = json.load(opened)
        for each in found.values():
            Provider(*each["provider"]), Tokens(*each["tokens"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadArgument(
            f"{file} is not readable ({error}): remove it, and `keylane login` again"
        ) from error
    return dict(found)


def _write(logins: dict[str, Any]) -> None:
    """Replace the file: a new one has mode 0600 before there is anything in it."""
    file = logins_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=FILE)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            json.dump(logins, opened)
        Path(name).replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
