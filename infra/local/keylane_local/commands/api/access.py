"""How commands reach an API: the options that all of them take, and errors as one sentence with an exit code.

The exit codes are 0, 1 (failed), 2 (wrong usage), and those of `_EXIT_CODES`.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec
from urllib.parse import urlsplit

import click

import keylane_client as api
from keylane_client.auth import region_of
from keylane_local.errors import BadInput, StackError
from keylane_local.stack.state import StackState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

DEFAULT_URL = "http://localhost:8080"
_EXIT_CODES = {
    api.NotFound: 3,
    api.AccessDenied: 4,
    api.NoCredentials: 4,
    api.Unreachable: 5,
    api.Unavailable: 6,
    api.RateLimited: 6,
    api.PositionNotReached: 6,
}
_BEARER = "Bearer "

P = ParamSpec("P")


class ApiFailed(StackError):
    """The API did not do what a command asked for."""

    def __init__(self, error: api.KeylaneError) -> None:
        super().__init__(_advise(error))
        self.exit_code = next((code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)), 1)


@dataclass(frozen=True, slots=True)
class Remote:
    """An API, and how it lets the caller in. `as_json`: a command prints JSON, one document a line."""

    url: str
    auth: httpx.Auth | None
    as_json: bool

    @contextmanager
    def client(self, options: api.ClientOptions | None = None) -> Iterator[api.Client]:
        """Give a client. An error of the API becomes ApiFailed, a wrong argument BadInput."""
        with translate_api_errors(), api.Client(self.url, self.auth, options=options) as client:
            yield client


@contextmanager
def translate_api_errors() -> Iterator[None]:
    """Raise ApiFailed or BadInput for what the client raises."""
    try:
        yield
    except api.KeylaneError as error:
        raise ApiFailed(error) from error
    except ValueError as error:
        raise BadInput(str(error)) from error


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
        url = url or local_url()
        region = region or region_of(urlsplit(url).hostname or "") or os.environ.get("AWS_REGION")
        with translate_api_errors():
            auth = _choose_auth(api_key, authorization, region, sign=sign)
        command(Remote(url, auth, as_json), *args, **options)

    return run


def local_url() -> str:
    """Return the URL of the local stack in KEYLANE_DATA or `.keylane`, or the usual one."""
    state = StackState.load(Path(os.environ.get("KEYLANE_DATA", ".keylane")))
    return f"http://127.0.0.1:{state.http_port}" if state else DEFAULT_URL


def _choose_auth(
    api_key: str | None, authorization: str | None, region: str | None, *, sign: bool
) -> httpx.Auth | None:
    if sum(map(bool, (api_key, authorization, sign))) > 1:
        raise BadInput("--api-key, --authorization and --sign (or their variables) exclude each other")
    if sign:
        if not region:
            raise BadInput("the URL does not name a region: use --region")
        return api.SigV4(region)
    if authorization:
        if not authorization.startswith(_BEARER):
            raise BadInput("--authorization is not a bearer token: write 'Bearer TOKEN'")
        return api.Bearer(authorization.removeprefix(_BEARER))
    return api.ApiKey(api_key) if api_key else None


def _advise(error: api.KeylaneError) -> str:
    text = " ".join(str(error).split())
    match error:
        case api.Unreachable():
            return f"{text} Start the local stack with `keylane up`, or name another API with --url."
        case api.AccessDenied():
            return f"{text} Use --api-key, --authorization or --sign, as the deployment demands."
        case api.ProblemError(retry_after_s=float(seconds)):
            return f"{text} (try again in {seconds:.0f} s)"
        case _:
            return text
