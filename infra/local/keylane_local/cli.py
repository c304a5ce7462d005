"""`keylane up | down | status | logs`: the local stack on the command line."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from keylane_local.errors import BadRequest, PartFailed, StackError
from keylane_local.process.processes import tail
from keylane_local.stack.plan import Wishes
from keylane_local.stack.stack import Stack
from keylane_local.stack.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane_local.deploy.deployment import Deployed

_out = Console(highlight=False, soft_wrap=True)
_err = Console(stderr=True, highlight=False, soft_wrap=True)
_USUAL_CONFIG = "keylane.toml"
_FOLLOW_S = 0.2
_NEXT = """
The stack stays up. Try next:
  curl -i {url}/topics/flights/keys/N14228
  curl -i -X PUT {url}/topics/flights/keys/N1 -H 'Content-Type: application/json' -d '{{"dest": "SFO"}}'
  curl -i '{url}/topics/flights/keys/N1?envelope=true'
  .venv/bin/keylane status | logs job -f | down
"""

_data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=".keylane",
    envvar="KEYLANE_DATA",
    show_default=True,
    help="Folder of everything that the stack writes.",
)
_port = click.IntRange(1, 65535)


def _progress() -> Callable[[str, str], None]:
    started = time.monotonic()

    def show(part: str, what: str) -> None:
        _out.print(f"[dim]{time.monotonic() - started:5.1f} s[/]  [bold]{part:<6}[/] {escape(what)}")

    return show


@click.group(help="Kafka topics, queryable over HTTP: the local stack.")
def keylane() -> None:
    """Group the commands."""


@keylane.command()
@_data_dir
@click.option(
    "--config", type=click.Path(path_type=Path), help="Default: keylane.toml here, if there is one."
)
@click.option("--kafka-port", type=_port, help="Default: 9092, or a free one.")
@click.option("--redis-port", type=_port, help="The first node's; default: 7000, or free ones.")
@click.option("--http-port", type=_port, help="Default: 8080, or a free one.")
@click.option("--shards", type=click.IntRange(3), help="Primaries of the Redis Cluster; default: 3.")
@click.option("--replicas", type=click.IntRange(0, 5), help="Replicas of each primary; default: 1.")
@click.option("--no-job", is_flag=True, help="Leave the Spark job out.")
@click.option("--localstack", is_flag=True, help="Start LocalStack too, and deploy template.yaml to it.")
@click.option("--localstack-port", type=_port, help="Default: 4566, or a free one.")
def up(
    *,
    data_dir: Path,
    config: Path | None,
    kafka_port: int | None,
    redis_port: int | None,
    http_port: int | None,
    shards: int | None,
    replicas: int | None,
    no_job: bool,
    localstack: bool,
    localstack_port: int | None,
) -> None:
    """Start the stack, or the parts of it that are down."""
    wishes = Wishes(
        kafka_port=kafka_port,
        redis_port=redis_port,
        http_port=http_port,
        shards=shards,
        replicas=replicas,
        job=not no_job,
        usual=True,
        localstack=localstack,
        localstack_port=localstack_port,
    )
    stack = Stack(data_dir, _config(data_dir, config, needed=not no_job), wishes=wishes, progress=_progress())
    if not stack.up():
        _out.print("The stack is up already.")
    deployed = stack.deploy() if localstack else None
    _show(stack)
    if deployed:
        _show_deployed(deployed)


def _config(data_dir: Path, given: Path | None, *, needed: bool) -> Path | None:
    """Choose the configuration: the one given, that of this folder, or that of the stack's last start."""
    if given:
        return given
    if (usual := Path(_USUAL_CONFIG)).exists():
        return usual
    state = State.load(data_dir)
    if state and state.config:
        return Path(state.config)
    if needed:
        raise BadRequest(f"no {_USUAL_CONFIG} in this folder: name yours with --config, or leave --no-job")
    return None


@keylane.command()
@_data_dir
@click.option("-p", "--parameter", multiple=True, help="NAME=VALUE, of the template; any number of them.")
def deploy(data_dir: Path, parameter: tuple[str, ...]) -> None:
    """Deploy template.yaml to the stack's LocalStack, or what changed of it; print where it answers."""
    if wrong := [each for each in parameter if "=" not in each]:
        raise BadRequest(f"{wrong[0]!r} is no parameter: it takes NAME=VALUE")
    given = dict(each.partition("=")[::2] for each in parameter)
    config = _config(data_dir, None, needed=False)
    _show_deployed(Stack(data_dir, config, progress=_progress()).deploy(given))


@keylane.command()
@_data_dir
@click.option("--once", is_flag=True, help="Stop the stack at the end.")
def demo(data_dir: Path, once: bool) -> None:
    """Load the flights of New York 2013 and show their answers over HTTP."""
    from keylane_local.commands import demo as flights  # noqa: PLC0415 - it alone needs what it imports

    config = _config(data_dir, None, needed=True)
    stack = Stack(data_dir, config, wishes=Wishes(usual=True), progress=_progress())
    try:
        stack.up()
        flights.run(stack, _out)
    finally:
        if once:
            stack.down()
    if not once:
        _show(stack)
        _out.print(_NEXT.format(url=stack.http_url))


@keylane.command()
@_data_dir
@click.option("--wipe", is_flag=True, help="Delete the data folder too.")
def down(data_dir: Path, wipe: bool) -> None:
    """Stop the stack; its data stays unless --wipe."""
    stopped = Stack(data_dir, progress=_progress()).down(wipe=wipe)
    _out.print("The stack is down." if stopped else "No stack runs here.")


@keylane.command()
@_data_dir
def status(data_dir: Path) -> None:
    """Show each part; exits with 1 unless all run."""
    stack = Stack(data_dir)
    if not stack.parts:
        _out.print(f"No stack was started in {data_dir}.")
        sys.exit(1)
    _show(stack)
    sys.exit(0 if all(part.running for part in stack.parts) else 1)


@keylane.command()
@_data_dir
@click.argument("part")
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows.")
@click.option("-n", "--lines", type=click.IntRange(1), default=50, show_default=True)
def logs(data_dir: Path, part: str, follow: bool, lines: int) -> None:
    """Show the end of a log: kafka, redis-0, ..., job, front, functions."""
    folder = data_dir / "logs"
    log = folder / f"{part}.log"
    if not log.exists():
        known = ", ".join(sorted(path.stem for path in folder.glob("*.log")))
        raise BadRequest(f"no log of {part!r}: there are {known or 'none yet'}")
    position = log.stat().st_size
    click.echo(tail(log, lines))
    while follow:
        with log.open(encoding="utf-8", errors="replace") as file:
            file.seek(position)
            click.echo(file.read(), nl=False)
            position = file.tell()
        time.sleep(_FOLLOW_S)


@keylane.command("invoke")
@_data_dir
@click.argument("function")
@click.option("-e", "--event", type=click.Path(path_type=Path), required=True, help="A file of events/.")
@click.option("--layer", type=click.Path(path_type=Path), help="A built layer, as build/layer/python.")
def invoke_function(data_dir: Path, function: str, event: Path, layer: Path | None) -> None:
    """Hand one event to a function, as Lambda does; exits with 1 where the function fails.

    Its addresses are those of the stack in the data folder; KEYLANE_ variables come before them.
    """
    from keylane_local.commands import invoke  # noqa: PLC0415 - it alone needs what it imports

    stack = Stack(data_dir)
    variables = invoke.variables_of(stack.environment() if stack.parts else {}, os.environ)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "function.log"
        given = invoke.function_of(function, layer, log, variables)
        done = invoke.invoke(given, invoke.event_of(event))
        click.echo(log.read_text(encoding="utf-8", errors="replace"), err=True, nl=False)
    click.echo(f"init {done.init_ms:.0f} ms, duration {done.duration_ms:.1f} ms", err=True)
    click.echo(invoke.shown(done.answer))
    sys.exit(1 if done.answer.failed else 0)


@keylane.command()
@click.option("--queue-url", required=True, help="The dead letters: KEYLANE_DLQ_URL of the drain function.")
@click.option("--to", "target", required=True, help="The write-ahead log: its KEYLANE_QUEUE_URL.")
@click.option("--topic", help="Only what belongs to this topic.")
@click.option("--dry-run", is_flag=True, help="Move nothing; tell what is there, and why.")
def replay(queue_url: str, target: str, topic: str | None, dry_run: bool) -> None:
    """Move dead letters back into the write-ahead log, in their order."""
    from keylane_local.commands import replay as letters  # noqa: PLC0415 - it imports boto3

    letters.run(queue_url, target, os.environ, topic, dry_run=dry_run)


def _show(stack: Stack) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("part", "state", "pid", "address"):
        table.add_column(column)
    for name, running, pids, address in _rows(stack):
        table.add_row(name, "[green]up[/]" if running else "[red]down[/]", pids, address)
    _out.print(table)


def _show_deployed(deployed: Deployed) -> None:
    _out.print(f"\n{'Deployed' if deployed.changed else 'Nothing changed'}. It answers at:\n  {deployed.url}")
    if deployed.api_key:
        _out.print(f"  with the header x-api-key: {deployed.api_key}")


def _rows(stack: Stack) -> list[tuple[str, bool, str, str]]:
    programs = [("kafka", stack.kafka.program, stack.kafka_bootstrap)]
    programs += [(f"redis-{i}", node.program, node.address) for i, node in enumerate(stack.redis.nodes)]
    programs.append(("http", stack.front.program, stack.http_url))
    if stack.localstack:
        programs.append(("localstack", stack.localstack.program, stack.localstack.url))
    if stack.state and stack.state.config:
        programs.append(("job", stack.job.program, stack.state.config))
    rows = []
    for name, program, address in programs:
        process = program.process
        rows.append((name, process is not None, str(process.pid) if process else "", address))
    return rows


def main() -> None:
    """Run a command; an error of the stack is a sentence and exit code 1, a failed part's with its log."""
    try:
        keylane(standalone_mode=True)
    except PartFailed as error:
        if error.tail:
            _err.print(f"[dim]The end of {escape(str(error.log))}:[/]\n{escape(error.tail)}\n")
        _err.print(f"[red]keylane:[/] {escape(str(error))}")
        sys.exit(1)
    except StackError as error:
        _err.print(f"[red]keylane:[/] {escape(str(error))}")
        sys.exit(1)


if __name__ == "__main__":
    main()
