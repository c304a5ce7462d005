"""How commands reach an API: the options that all of them take, and where the local stack's API is."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec
from urllib.parse import urlsplit

import click

import keylane_client as api
from keylane_client.cli.errors import ApiFailed, BadArgument
from keylane_client.cli.printing import line_of, print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

DEFAULT_URL = "http://localhost:8080"
_BEARER = "Bearer "
LOGINS = "logins.json"
"""Of `keylane login`: see kept_logins."""

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Remote:
    """An API, and the caller's credentials. `as_json`: a command prints JSON, one document a line.

    `is_named`: an option or the environment says which API it is; else it is the local stack's.
    """

    url: str
    auth: httpx.Auth | None
    as_json: bool
    is_named: bool = True

    def show(self, value: Any, *cells: Any) -> None:
        """Print the value as JSON, or these cells as a line."""
        print_json(value) if self.as_json else click.echo(line_of(*cells))

    @contextmanager
    def client(self, options: api.ClientOptions | None = None) -> Iterator[api.Client]:
        """Give a client. An error of the API becomes ApiFailed, a wrong argument BadArgument."""
        options = options or api.ClientOptions(loads=api.parse_exactly)
        with translate_api_errors(), api.Client(self.url, self.auth, options=options) as client:
            yield client


@contextmanager
def translate_api_errors() -> Iterator[None]:
    """Raise ApiFailed or BadArgument for what the client raises."""
    try:
        yield
    except api.InvalidArgument as error:
        raise BadArgument(str(error)) from error
    except api.KeylaneError as error:
        raise ApiFailed(error) from error
    except ValueError as error:
        raise BadArgument(str(error)) from error


def with_remote(command: Callable[Concatenate[Remote, P], None]) -> Callable[..., None]:
    """Give a command its API as the first argument, and the options that say which it is."""
    url = click.option("--url", envvar="KEYLANE_URL", show_envvar=True, help="Default: the local stack's.")
    return url(with_access(command))


def with_access(command: Callable[Concatenate[Remote, P], None]) -> Callable[..., None]:
    """As `with_remote`, for a command that takes `url` in another way."""

    @click.option("--api-key", envvar="KEYLANE_API_KEY", show_envvar=True, help="With Authorization=API_KEY.")
    @click.option(
        "--authorization",
        envvar="KEYLANE_AUTHORIZATION",
        show_envvar=True,
        help="With COGNITO or LAMBDA: the header, as in 'Bearer abc'.",
    )
    @click.option("--sign", is_flag=True, help="With IAM: sign requests with the AWS credentials at hand.")
    @click.option("--region", help="Of the signature. Default: as the URL has it.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        names = ("url", "api_key", "authorization", "sign", "region", "as_json")
        url, api_key, authorization, sign, region, as_json = (options.pop(name) for name in names)
        is_named, url = bool(url), url or local_url()
        with translate_api_errors():
            auth = _choose_auth(api_key, authorization, url, region, sign=sign)
        command(Remote(url, auth, as_json, is_named), *args, **options)

    return run


def local_url() -> str:
    """Return the URL of the local stack in KEYLANE_DATA or `.keylane`, or the usual one.

    `keylane up` writes the port into the folder's file stack.json, as `http_port`.
    """
    file = Path(os.environ.get("KEYLANE_DATA", ".keylane")) / "stack.json"
    try:
        port = int(json.loads(file.read_text(encoding="utf-8"))["http_port"])
    except FileNotFoundError:
        return DEFAULT_URL
    except OSError as error:
        raise BadArgument(f"{file} can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise BadArgument(f"{file} is not readable ({error}): remove the folder {file.parent}") from error
    return f"http://127.0.0.1:{port}"


def _choose_auth(
    api_key: str | None, authorization: str | None, url: str, region: str | None, *, sign: bool
) -> httpx.Auth | None:
    if sum(map(bool, (api_key, authorization, sign))) > 1:
        raise BadArgument("--api-key, --authorization and --sign (or their variables) exclude each other")
    if sign:
        return _sign(url, region)
    if authorization:
        if not authorization.startswith(_BEARER):
            raise BadArgument("--authorization is not a bearer token: write 'Bearer TOKEN'")
        return api.Bearer(authorization.removeprefix(_BEARER))
    if api_key:
        return api.ApiKey(api_key)
    return _by_login(url)


def _by_login(url: str) -> httpx.Auth | None:
    """Return the credentials of `keylane login` at this API, None without a login."""
    try:
        is_kept = (Path(click.get_app_dir("keylane")) / LOGINS).exists()
    except OSError:  # another user's home: there is no login of this one
        is_kept = False
    if not is_kept:
        return None
    from keylane_client.cli.kept_logins import kept_token  # noqa: PLC0415 (imports httpx)

    if kept_token(url) is None:
        return None
    return api.Bearer(lambda: kept_token(url) or "")


def _sign(url: str, region: str | None) -> httpx.Auth:
    from keylane_client.auth import region_of  # noqa: PLC0415 (imports httpx)

    region = region or region_of(urlsplit(url).hostname or "") or os.environ.get("AWS_REGION")
    if not region:
        raise BadArgument("the URL does not name a region: use --region")
    try:
        return api.SigV4(region)
    except ImportError as error:
        raise BadArgument("--sign needs botocore: pip install 'keylane-client[aws]'") from error
