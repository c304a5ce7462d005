"""`keylane serve`: the API by the standing server, with the settings of the environment.

Also `python -m keylane_cli.serve`, in an image without the rest of the command line.
"""

import os
import sys
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import click

from keylane_local import env_file
from keylane_local.errors import BadInput, StackError
from keylane_local.tools import console_dir
from keylane_server.admission import Limits
from keylane_server.options import AUTHORIZATIONS, NONE, ServerOptions

_path = click.Path(path_type=Path, exists=True, dir_okay=False)
_count = click.IntRange(1)
_LIMITS = ("running", "writing", "waiting", "long_polls", "connections", "of_address")


def _limit(name: str, text: str, least: int = 1) -> Callable[[click.decorators.FC], click.decorators.FC]:
    default, option = getattr(Limits(), name), f"--max-{name.replace('_', '-')}"
    return click.option(option, name, type=click.IntRange(least), default=default, help=text)


@click.command(context_settings={"show_default": True})
@click.option("--host", default="127.0.0.1", help="Address to listen on; 0.0.0.0: all of them.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, help="Port to listen on.")
@click.option("--workers", type=_count, default=1, help="Processes. One uses one core.")
@click.option("--tls-certificate", type=_path, help="PEM file of the certificate and its chain.")
@click.option("--tls-key", type=_path, help="PEM file of the certificate's key.")
@click.option(
    "--authorization",
    type=click.Choice(AUTHORIZATIONS),
    default=NONE,
    help="tokens: each request needs a token of KEYLANE_ACCESS.",
)
@click.option("--access-log", "logs_access", is_flag=True, help="Log each request to standard error.")
@click.option("--emf", is_flag=True, help="Also print the metrics once a minute, for CloudWatch (EMF).")
@click.option("--drain-s", type=_count, default=30, help="Seconds for what runs at SIGTERM.")
@_limit("running", "Reads that run at a time, in each process.")
@_limit("writing", "Writes that run at a time, most of it waiting for Kafka.")
@_limit("waiting", "Reads, and writes, that wait for their turn; further ones get 503.")
@_limit("long_polls", "Requests that wait for a change.")
@_limit("connections", "Connections; further ones wait until one ends.")
@_limit("of_address", "Requests of one address at a time; 0: no bound, as behind a load balancer.", least=0)
def serve(**given: Any) -> None:
    """Serve the API, as the Lambda functions do, in one process or some.

    It takes the KEYLANE_ variables of the functions, those of keylane.env in this folder, and the
    partitioners of a keylane.toml there. SIGTERM ends it, once what runs is answered.
    """
    env_file.apply(env_file.beside(None), os.environ)
    env_file.apply_placement(Path("keylane.toml"), os.environ)
    if bool(given["tls_certificate"]) != bool(given["tls_key"]):
        raise BadInput("--tls-certificate and --tls-key belong together")
    from keylane_server.server import serve as run  # noqa: PLC0415 - its imports take long

    limits = Limits(**{name: given.pop(name) for name in _LIMITS})
    options = ServerOptions(console=console_dir(), limits=limits, **given)
    try:
        run(options)
    except OSError as error:
        raise StackError(f"the server can't listen on {options.url}: {error.strerror}") from error


server = copy(serve)
server.name = "server"
"""The same by the name of the part, as `keylane job` is that of the job."""

if __name__ == "__main__":
    try:
        serve.main(prog_name="keylane serve")
    except StackError as error:
        print(f"keylane: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
