"""`keylane doctor`: what could keep the stack, or a deployed API, from working, each with what to do.

The checks of this machine are about `keylane up`; those of an API are about the one of --url. Redis and the
Schema Registry are looked at where KEYLANE_REDIS_NODES and KEYLANE_SCHEMA_REGISTRY_URL, or the local stack,
say where they are.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import click

from keylane_cli.doctor_checks import (
    Check,
    check_api,
    check_kafka,
    check_machine,
    check_redis,
    check_registry,
)
from keylane_client.cli.access import Remote, with_remote
from keylane_client.cli.printing import print_json, printable
from keylane_local import env_file
from keylane_local.stack.stack import Stack

CONFIG = Path("keylane.toml")
_MARKS = {"ok": ("ok", "green"), "warning": ("note", "yellow"), "failed": ("FAILED", "red")}


@click.command()
@with_remote
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=".keylane",
    envvar="KEYLANE_DATA",
    show_default=True,
    help="Folder of the local stack.",
)
def doctor(remote: Remote, data_dir: Path) -> None:
    """Check Java, Redis, ports, the API, clocks and settings, and say what to do.

    The exit code is 1 if something failed.
    """
    env_file.apply(env_file.beside(None), os.environ)
    variables = _variables(data_dir)
    checks = [*check_machine(data_dir, os.environ), *check_api(remote.url, remote.auth)]
    checks += [*check_kafka(variables, CONFIG), *check_redis(variables), *check_registry(variables)]
    for check in checks:
        print_json(asdict(check)) if remote.as_json else _show(check)
    sys.exit(1 if any(check.result == "failed" for check in checks) else 0)


def _variables(data_dir: Path) -> Mapping[str, str]:
    stack = Stack(data_dir)
    return {**(stack.environment() if stack.parts else {}), **os.environ}


def _show(check: Check) -> None:
    mark, colour = _MARKS[check.result]
    click.echo(f"{click.style(f'{mark:<6}', fg=colour)}  {check.name:<16}  {printable(str(check.found))}")
    if check.advice:
        click.echo(f"        {check.advice}")
