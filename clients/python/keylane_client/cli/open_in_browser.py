"""`keylane open`: the console of an API in the browser, else the list of its topics."""

import webbrowser

import click
import httpx

from keylane_client.cli.access import Remote, with_remote
from keylane_client.cli.printing import print_json

CONSOLE, TOPICS = "/console", "/topics"
TIMEOUT_S = 10.0


@click.command("open")
@with_remote
@click.option("--no-browser", is_flag=True, help="Print the URL only.")
def open_in_browser(remote: Remote, *, no_browser: bool) -> None:
    """Open the console in the browser, and print its URL; the list of topics if the API has no console."""
    url = remote.url.rstrip("/") + (CONSOLE if _has_console(remote) else TOPICS)
    opened = not no_browser and webbrowser.open(url)
    print_json({"url": url, "opened": opened}) if remote.as_json else click.echo(url)
    if not (opened or no_browser):
        click.echo("This machine has no browser: open the URL in yours.", err=True)


def _has_console(remote: Remote) -> bool:
    with remote.client() as client:
        client.health()  # says what is wrong with a URL or with credentials, as all commands do
    try:
        answer = httpx.get(
            remote.url.rstrip("/") + CONSOLE, auth=remote.auth, timeout=TIMEOUT_S, follow_redirects=True
        )
    except httpx.HTTPError:
        return False
    return answer.is_success and "html" in answer.headers.get("Content-Type", "")
