"""`keylane new`: the files of a project for a cluster of one's own."""

import os
import re
import shlex
from pathlib import Path

import click

from keylane_client.cli.printing import print_json, printable
from keylane_local import env_file
from keylane_local.errors import BadInput, StackError

TOPICS, SETTINGS, DEPLOYMENT = "keylane.toml", env_file.NAME, "samconfig.toml"
_SECRETS = ("KEYLANE_KAFKA_SASL_PASSWORD", "KEYLANE_REDIS_PASSWORD")
_STACK = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,39}")
_ADDRESSES = re.compile(r"[^/@\s,\"\\]+:\d{1,5}(,[^/@\s,\"\\]+:\d{1,5})*")


def _check_stack(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    if given is not None and not _STACK.fullmatch(given):
        raise click.BadParameter("a stack's name is a letter and up to 39 letters, digits and hyphens")
    return given


def _check_topics(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    from keylane.model.records import is_topic_name  # noqa: PLC0415 - its imports take long

    if not all(map(is_topic_name, given)):
        raise click.BadParameter("a topic's name has 1 to 249 letters, digits, '.', '_' and '-'")
    return given


def _check_addresses(_: click.Context, __: click.Parameter, given: str | None) -> str:
    addresses = (given or "").replace(" ", "")
    if not addresses:
        return ""
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
    callback=_check_addresses,
    help="Some nodes of the Redis Cluster, HOST:PORT,HOST:PORT. Default: `keylane up` starts one.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    callback=_check_topics,
    help="A topic to serve. May be repeated. Default: all of Kafka's.",
)
@click.option("--create-topics", is_flag=True, help="Let the job create topics that Kafka does not have.")
@click.option(
    "--stack",
    callback=_check_stack,
    help="Also write samconfig.toml, for AWS: the name of the CloudFormation stack.",
)
@click.option("--unchecked", is_flag=True, help="Write the files without a look at Kafka and Redis.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def new(  # noqa: PLR0913 (the options of a command)
    *,
    folder: Path,
    kafka: str,
    redis: str,
    topics: tuple[str, ...],
    create_topics: bool,
    stack: str | None,
    unchecked: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write keylane.toml and keylane.env into FOLDER, for a Kafka that exists.

    Kafka, and Redis if it is named, are looked at first; a topic's first records name its partitioner. The
    environment has what is needed to log in, as for the functions. Then `keylane up` in FOLDER serves the
    topics. Nothing is written to Kafka.
    """
    from keylane.errors import KeylaneError  # noqa: PLC0415 - the imports take long
    from keylane_cli import new_project, project_files  # noqa: PLC0415

    paths = [folder / TOPICS, folder / SETTINGS, *([folder / DEPLOYMENT] if stack else [])]
    existing = [str(path) for path in paths if path.exists()]
    if existing and not force:
        raise BadInput(f"{' and '.join(existing)} exists already: name another folder, or use --force")
    if unchecked and not topics:
        raise BadInput("--unchecked needs --topic: nobody looks which topics Kafka has")
    project = new_project.NewProject(kafka, redis, topics, stack)
    try:
        found = (
            new_project.without_a_look(project)
            if unchecked
            else new_project.look_at(project, os.environ, creates=create_topics)
        )
    except KeylaneError as error:
        raise StackError(f"{error} (--unchecked writes the files without a look)") from error
    texts = [project_files.render_topics(found), project_files.render_environment(project, found, os.environ)]
    if stack:
        texts.append(project_files.render_deployment(project, found, os.environ))
    _write(folder, dict(zip(paths, texts, strict=True)))
    if as_json:
        print_json({"files": [str(path) for path in paths], "topics": new_project.summarize(found)})
        return
    for name, each in found.items():
        what = "left out, because its first records have no keys"
        if each.has_keys:
            what = f"partitioner {each.guess.partitioner}: {each.guess.reason}"
        click.echo(f"{name}: {printable(what)}")
    for path in paths:
        click.echo(f"wrote {path}")
    if secrets := [name for name in _SECRETS if name in os.environ]:
        click.echo(f"Not written: {', '.join(secrets)}. Set it where the parts run, or add it to {SETTINGS}.")
    click.echo(f"Next: {'' if folder == Path() else f'cd {shlex.quote(str(folder))} && '}keylane up")


def _write(folder: Path, texts: dict[Path, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.touch(mode=0o600 if path.name == SETTINGS else 0o666)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{error.filename or folder} cannot be written: {error.strerror}") from error
