"""`keylane new`: the files of a project for a cluster of one's own."""

import os
import re
from pathlib import Path

import click

from keylane_client.cli.printing import print_json
from keylane_local.errors import BadInput, StackError

TOPICS, DEPLOYMENT = "keylane.toml", "samconfig.toml"
_STACK = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,127}")
_ADDRESSES = re.compile(r"[^/@\s,\"\\]+:\d{1,5}(,[^/@\s,\"\\]+:\d{1,5})*")


def _check_stack(_: click.Context, __: click.Parameter, given: str) -> str:
    if not _STACK.fullmatch(given):
        raise click.BadParameter("a stack's name has letters, digits and hyphens, and begins with a letter")
    return given


def _check_topic(_: click.Context, __: click.Parameter, given: str) -> str:
    from keylane.model.records import is_topic_name  # noqa: PLC0415 - its imports take long

    if not is_topic_name(given):
        raise click.BadParameter("a topic's name has 1 to 249 letters, digits, '.', '_' and '-'")
    return given


def _check_addresses(_: click.Context, __: click.Parameter, given: str) -> str:
    addresses = given.replace(" ", "")
    if not _ADDRESSES.fullmatch(addresses):
        raise click.BadParameter("write HOST:PORT, or several of them with commas")
    return addresses


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.option(
    "--kafka",
    envvar="KEYLANE_KAFKA_BOOTSTRAP",
    show_envvar=True,
    prompt="Kafka's brokers, HOST:PORT",
    callback=_check_addresses,
    help="Kafka's brokers, HOST:PORT,HOST:PORT.",
)
@click.option(
    "--redis",
    envvar="KEYLANE_REDIS_NODES",
    show_envvar=True,
    prompt="Nodes of the Redis Cluster, HOST:PORT",
    callback=_check_addresses,
    help="Some nodes of the Redis Cluster, HOST:PORT,HOST:PORT.",
)
@click.option("--topic", prompt="The first topic", callback=_check_topic, help="The first topic to serve.")
@click.option(
    "--stack",
    prompt="Name of the stack on AWS",
    default="keylane-dev",
    callback=_check_stack,
    help="Name of the CloudFormation stack.",
)
@click.option("--unchecked", is_flag=True, help="Write the files without a look at Kafka and Redis.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def new(  # noqa: PLR0913 (the options of a command)
    *,
    folder: Path,
    kafka: str,
    redis: str,
    topic: str,
    stack: str,
    unchecked: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write keylane.toml and samconfig.toml into FOLDER, for Kafka and Redis that exist.

    Both are looked at first; the topic's first records name its partitioner. The environment has what is
    needed to log in, as for the functions. What no option gives is asked for.
    """
    from keylane.errors import KeylaneError  # noqa: PLC0415 - the imports take long
    from keylane_local.commands import new_project  # noqa: PLC0415

    paths = [folder / TOPICS, folder / DEPLOYMENT]
    existing = [str(path) for path in paths if path.exists()]
    if existing and not force:
        raise BadInput(f"{' and '.join(existing)} exists already: name another folder, or use --force")
    project = new_project.NewProject(kafka, redis, topic, stack)
    try:
        found = new_project.UNCHECKED if unchecked else new_project.look_at(project, os.environ)
    except KeylaneError as error:
        raise StackError(f"{error} (--unchecked writes the files without a look)") from error
    texts = (
        new_project.render_topics(project, found),
        new_project.render_deployment(project, found, os.environ),
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    guess = found.guess
    if as_json:
        stripes = found.stripes and found.stripes.stripes
        document = {"files": [str(path) for path in paths], "topic": topic, "partitions": found.partitions}
        document |= {"stripes": stripes}
        print_json(
            document | {"partitioner": guess.partitioner, "guarded": guess.is_guarded, "why": guess.reason}
        )
        return
    click.echo(f"partitioner {guess.partitioner}: {guess.reason}")
    for path in paths:
        click.echo(f"wrote {path}")
    click.echo(f"Next: run the job with KEYLANE_KAFKA_BOOTSTRAP={kafka} KEYLANE_REDIS_NODES={redis}")
    click.echo(f"  .venv/bin/python -m keylane_spark --config {paths[0]}")
    click.echo("and complete samconfig.toml for `sam deploy`: docs/operate/deploy.md")
