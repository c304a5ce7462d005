"""`keylane login` and `logout`: a token by the browser, with a redirect to this machine (RFC 8252)."""

from __future__ import annotations

import time
import webbrowser
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import click
import httpx

from keylane_client.cli.access import local_url
from keylane_client.cli.errors import BadArgument
from keylane_client.cli.kept_logins import forget_login, keep_login
from keylane_client.cli.oidc import LoginAttempt, LoginFailed, find_provider
from keylane_client.cli.printing import without_login

HOST, CALLBACK = "127.0.0.1", "/callback"
SETTINGS = "/console/login.json"
TIMEOUT_S = 10.0
_TURN_S = 0.5

_url = click.option("--url", envvar="KEYLANE_URL", show_envvar=True, help="Default: the local stack's.")


@click.command()
@_url
@click.option("--issuer", help="Whose login it is. Default: as the server says.")
@click.option("--client-id", help="Of the program `keylane` at the issuer. Default: as the server says.")
@click.option("--scope", help="Scopes to ask for. Default: as the server says, else openid.")
@click.option("--token", type=click.Choice(["access", "id"]), help="Which token the API takes.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Of the redirect, if the issuer needs it."
)
@click.option(
    "--timeout-s", type=click.IntRange(1, 3600), default=300, help="How long to wait for the browser."
)
@click.option("--no-browser", is_flag=True, help="Print the address only.")
def login(url: str | None, *, port: int, timeout_s: int, no_browser: bool, **given: str | None) -> None:
    """Log in by the browser; commands that speak to this API then send the token, if they are given none."""
    url = url or local_url()
    provider = find_provider(_settings(url, given))
    with _Redirect(port) as redirect:
        attempt = LoginAttempt.begin(provider, redirect.uri)
        click.echo(f"Log in at {attempt.address}", err=True)
        if not no_browser:
            webbrowser.open(attempt.address)
        answer = redirect.wait(attempt, time.monotonic() + timeout_s)
    tokens = attempt.redeem(answer)
    keep_login(url, provider, tokens)
    end = time.strftime("%Y-%m-%d %H:%M", time.localtime(tokens.expires_s))
    until = f"until {end}{', renewed' * bool(tokens.refresh_token)}"
    click.echo(f"{without_login(url)}: logged in as {tokens.subject!r} {until}")


@click.command()
@_url
def logout(url: str | None) -> None:
    """Forget the token of the login at this API. The login at the issuer goes on."""
    url = url or local_url()
    what = "logged out" if forget_login(url) else "there was no login"
    click.echo(f"{without_login(url)}: {what}")


def _settings(url: str, given: dict[str, str | None]) -> dict[str, Any]:
    """Return the fields of a provider: what is given, else what the server says."""
    chosen: dict[str, Any] = {name: each for name, each in given.items() if each}
    if {"issuer", "client_id"} <= chosen.keys():
        return chosen
    try:
        answer = httpx.get(url.rstrip("/") + SETTINGS, timeout=TIMEOUT_S)
        found = answer.json() if answer.is_success else {}
    except (httpx.HTTPError, ValueError):
        found = {}
    if not isinstance(found, dict) or not {"issuer", "client_id"} <= found.keys():
        raise BadArgument(
            f"{without_login(url)} does not say how people log in: name --issuer and --client-id"
        )
    return {**found, **chosen}


class _Redirect(HTTPServer):
    """Takes the browser's return, on this machine alone. It refuses whatever does not answer the attempt."""

    def __init__(self, port: int) -> None:
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise BadArgument(f"the port {port} of this machine is in use") from error
        self.timeout = _TURN_S
        self.attempt: LoginAttempt | None = None
        self.answer: dict[str, str] | None = None

    @property
    def uri(self) -> str:
        return f"http://{HOST}:{self.server_port}{CALLBACK}"

    def wait(self, attempt: LoginAttempt, until_s: float) -> dict[str, str]:
        """Return the parameters of the issuer's answer. Raises LoginFailed."""
        self.attempt = attempt
        while self.answer is None:
            if time.monotonic() >= until_s:
                raise LoginFailed("nobody has logged in: the browser did not come back")
            self.handle_request()
        return self.answer


class _Handler(BaseHTTPRequestHandler):
    timeout = TIMEOUT_S
    server: _Redirect

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        attempt = self.server.attempt
        is_ours = parts.path == CALLBACK and attempt is not None and attempt.is_answered_by(given)
        if is_ours:
            self.server.answer = given
        text = "keylane has the answer. You may close this page."
        body = (text if is_ours else "This is not an answer to keylane login.").encode()
        self.send_response(200 if is_ours else 400)
        for name, value in {
            "Content-Type": "text/plain; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "Connection": "close",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing: the address has the code."""
