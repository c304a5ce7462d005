"""`keylane transform`: what a topic's transform makes of its first records, before the job does."""

import os
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click

from keylane_cli.options import with_config
from keylane_client.cli.printing import print_json, printable
from keylane_local import env_file
from keylane_local.errors import StackError

_COLOURS = {"set": "green", "same": None, "deleted": "yellow", "failed": "red"}


@click.command()
@click.argument("topic")
@with_config
@click.option("--sample", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Records.")
@click.option("--kafka", envvar=env_file.KAFKA, show_envvar=True, help="Kafka's brokers, HOST:PORT.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a record a line.")
def transform(topic: str, config: Path, sample: int, kafka: str | None, as_json: bool) -> None:
    """Show what where, select or transform of TOPIC makes of its first records, before and after.

    Nothing is written. The exit code is 1 if it fails on any of them.
    """
    from keylane.errors import KeylaneError  # noqa: PLC0415 - its imports take long
    from keylane_cli import transform_sample  # noqa: PLC0415

    environment = {**env_file.read(env_file.beside(config)), **os.environ}
    if kafka:
        environment[env_file.KAFKA] = kafka
    results: Counter[str] = Counter()
    try:
        for each in transform_sample.transform_sample(config, topic, environment, sample):
            results[each.result] += 1
            if as_json:
                print_json(asdict(each))
                continue
            result = click.style(f"{each.result:<8}", fg=_COLOURS[each.result])
            why = f"  {each.why}" if each.why else ""
            click.echo(f"{result} {each.position}  {printable(f'{each.key}{why}')}")
            click.echo(f"  before  {printable(str(each.before))}")
            if each.result == "set":
                click.echo(f"  after   {printable(str(each.after))}")
    except KeylaneError as error:
        raise StackError(str(error)) from error
    if not as_json:
        counts = ", ".join(f"{count} {result}" for result, count in results.items())
        click.echo(f"{sum(results.values())} records{f': {counts}' if counts else ''}")
    sys.exit(1 if results["failed"] else 0)
