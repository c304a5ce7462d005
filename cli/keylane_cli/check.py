"""`keylane check`: all that can be known of keylane.toml and keylane.env before anything starts."""

import os
import sys
from dataclasses import asdict
from pathlib import Path

import click

from keylane_cli.options import with_config
from keylane_client.cli.printing import print_json, printable
from keylane_local import env_file
from keylane_local.errors import StackError

_COLOURS = {"wrong": "red", "warning": "yellow", "note": "cyan"}


@click.command()
@with_config
@click.option(
    "--kafka",
    envvar=env_file.KAFKA,
    show_envvar=True,
    help="Kafka's brokers, HOST:PORT. Default: those of keylane.env, else nobody looks.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a finding a line.")
def check(config: Path, kafka: str | None, as_json: bool) -> None:
    """Say what is wrong with keylane.toml and keylane.env, without starting anything.

    With a Kafka: also what its topics and their first records say. With a Redis: how lanes lie on its shards.
    The exit code is 1 if something is wrong.
    """
    from keylane.errors import KeylaneError  # noqa: PLC0415 - its imports take long
    from keylane_cli import check_config, check_topics  # noqa: PLC0415

    environment = {**env_file.read(env_file.beside(config)), **os.environ}
    if kafka:
        environment[env_file.KAFKA] = kafka
    found, valid = check_config.check_file(config)
    found += check_config.check_settings(env_file.beside(config))
    if valid:
        found += check_config.check_sql(valid)
    try:
        if valid and environment.get(env_file.KAFKA):
            found += check_topics.look_at(valid, environment)
    except KeylaneError as error:
        raise StackError(str(error)) from error
    for each in found:
        if as_json:
            print_json(asdict(each))
        else:
            kind = click.style(f"{each.kind:<7}", fg=_COLOURS[each.kind])
            click.echo(f"{kind}  {each.where}: {printable(each.what)}")
    if not found and not as_json:
        what = "" if environment.get(env_file.KAFKA) else " (no Kafka was looked at: name one with --kafka)"
        click.echo(f"Nothing is wrong with {config}{what}.")
    sys.exit(any(each.kind == "wrong" for each in found))
