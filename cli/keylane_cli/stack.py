"""The commands of `keylane` that start, show and stop the local stack, and `invoke`."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from keylane_cli import containers
from keylane_client.cli.access import Remote, with_remote
from keylane_local import env_file
from keylane_local.errors import BadInput
from keylane_local.process import processes
from keylane_local.process.ports import HOST
from keylane_local.stack.foreground import stay, stopped_afterwards
from keylane_local.stack.plan import DEMO_CONFIG, StackOptions
from keylane_local.stack.stack import Stack
from keylane_local.stack.state import StackState
from keylane_local.stack.topics import load_topics
from keylane_local.tools import is_checkout, project_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane_local.deploy.deployment import Deployed
    from keylane_local.process.program import Program

_out = Console(highlight=False, soft_wrap=True)
_COLOURS = {
    "complete": "green",
    "stopped": "red",
    "incomplete": "red",
    "old": "red",
    "up": "green",
    "down": "red",
}
_DEFAULT_CONFIG = "keylane.toml"
_FOLLOW_S = 0.2
_NEXT = """
The stack keeps running. Try next:
  curl -i {url}/topics/flights/keys/N14228
  curl -i -X PUT {url}/topics/flights/keys/N1 -H 'Content-Type: application/json' -d '{{"dest": "SFO"}}'
  curl -i '{url}/topics/flights/keys/N1?envelope=true'
  {program} console                      # the same in a browser: {url}/console/
  {program} status | logs job -f | down
"""

_data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=".keylane",
    envvar="KEYLANE_DATA",
    show_default=True,
    help="Folder for everything that the stack writes.",
)
_port = click.IntRange(1, 65535)
_http_host = click.option(
    "--http-host",
    default=HOST,
    show_default=True,
    help="Address of HTTP, which asks for no token; 0.0.0.0: all of them, as in a container.",
)
_foreground = click.option(
    "--foreground", is_flag=True, help="Stay until SIGTERM, or until a part ends, and stop the stack then."
)


class _Progress:
    def __init__(self) -> None:
        self._started_s = time.monotonic()

    def show(self, part: str, event: str) -> None:
        """Print a line of progress with the time since the command started."""
        _out.print(f"[dim]{time.monotonic() - self._started_s:5.1f} s[/]  [bold]{part:<6}[/] {escape(event)}")


@click.command()
@_data_dir
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Topics and views. Default: keylane.toml in this folder, else the file of the last start.",
)
@click.option("--kafka-port", type=_port, help="Kafka's port. Default: 9092, or a free one.")
@click.option("--redis-port", type=_port, help="Port of the first Redis node. Default: 7000, or free ones.")
@click.option("--http-port", type=_port, help="Port of the server. Default: 8080, or a free one.")
@click.option("--shards", type=click.IntRange(3), help="Primaries of the Redis Cluster. Default: 3.")
@click.option("--replicas", type=click.IntRange(0, 5), help="Replicas of each primary. Default: 1.")
@click.option("--host", help="Address of Kafka and Redis, for containers. They have no passwords.")
@_http_host
@_foreground
@click.option("--no-job", "job", flag_value=False, default=True, help="Do not start the Spark job.")
@click.option("--localstack", is_flag=True, help="Also start LocalStack, and deploy template.yaml to it.")
@click.option("--localstack-port", type=_port, help="LocalStack's port. Default: 4566, or a free one.")
def up(*, data_dir: Path, config: Path | None, job: bool, foreground: bool, **given: Any) -> None:
    """Start the stack, or those of its parts that are down.

    Job and server start again if keylane.toml or their settings have changed.
    """
    from keylane_cli import preflight  # noqa: PLC0415 - its imports take long

    config = _choose_config(data_dir, config, required=job)
    settings = _read_settings(config)
    options = StackOptions(job=job, default_ports=True, metrics=_serves_metrics(), **given, **settings)
    preflight.check(options, config if job else None)
    stack = Stack(data_dir, config, options=options, progress=_Progress().show)
    with stopped_afterwards(stack) if foreground else nullcontext():
        if not stack.up():
            _out.print("The stack is already running.")
        deployed = stack.deploy() if options.localstack else None
        _show(stack)
        containers.explain(stack)
        if deployed:
            _show_deployed(deployed)
        if foreground:
            stay(stack)


def _read_settings(config: Path | None) -> dict[str, Any]:
    """Add the project's keylane.env to the environment; return where its Kafka and its Redis are."""
    env_file.apply(env_file.beside(config), os.environ)
    names = {"outside_kafka": env_file.KAFKA, "outside_redis": env_file.REDIS}
    return {field: os.environ.get(name, "").replace(" ", "") or None for field, name in names.items()}


def _serves_metrics() -> bool:
    """Whether the job's metrics are for Prometheus: as long as the environment does not say otherwise."""
    return "KEYLANE_JOB_METRICS" not in os.environ


def _choose_config(data_dir: Path, given: Path | None, *, required: bool) -> Path | None:
    """Return the configuration that was given, else this folder's, else that of the stack's last start."""
    if given:
        return given
    if (usual := Path(_DEFAULT_CONFIG)).exists():
        return usual
    state = StackState.load(data_dir)
    if state and state.config:
        return Path(state.config)
    if required:
        raise BadInput(f"no {_DEFAULT_CONFIG} in this folder: name a file with --config, or use --no-job")
    return None


@click.command()
@_data_dir
@click.option("-p", "--parameter", multiple=True, help="A template parameter, NAME=VALUE. May be repeated.")
def deploy(data_dir: Path, parameter: tuple[str, ...]) -> None:
    """Deploy template.yaml, or its changes, to the stack's LocalStack, and print the URL."""
    if wrong := [each for each in parameter if "=" not in each]:
        raise BadInput(f"{wrong[0]!r} is not a parameter: write NAME=VALUE")
    given = dict(each.partition("=")[::2] for each in parameter)
    config = _choose_config(data_dir, None, required=False)
    _show_deployed(Stack(data_dir, config, progress=_Progress().show).deploy(given))


@click.command()
@_data_dir
@_http_host
@_foreground
@click.option("--once", is_flag=True, help="Stop the stack afterwards.")
def demo(data_dir: Path, http_host: str, foreground: bool, once: bool) -> None:
    """Write the flights of New York 2013 into Kafka and read some of them over HTTP."""
    from keylane_local.demo import steps  # noqa: PLC0415 - its imports take long

    config = _choose_config(data_dir, None, required=False) or _write_demo_config(data_dir)
    if _read_settings(config)["outside_kafka"]:
        raise BadInput(
            "the demo writes into the Kafka of a local stack, and this folder names another: run it elsewhere"
        )
    if steps.TOPIC not in load_topics(config):
        raise BadInput(f"{config} has no topic {steps.TOPIC!r}: run `keylane demo` in an empty folder")
    options = StackOptions(default_ports=True, metrics=_serves_metrics(), http_host=http_host)
    stack = Stack(data_dir, config, options=options, progress=_Progress().show)
    with stopped_afterwards(stack) if once or foreground else nullcontext():
        stack.up()
        steps.run(stack, _out)
        if once:
            return
        _show(stack)
        program = ".venv/bin/keylane" if is_checkout() else "keylane"
        _out.print(_NEXT.format(url=stack.http_url, program=program))
        if foreground:
            stay(stack)


def _write_demo_config(data_dir: Path) -> Path:
    """Copy the demo's topics and views into the data folder: this folder is for the user's own."""
    data_dir.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(project_root() / _DEFAULT_CONFIG, data_dir / DEMO_CONFIG))


@click.command()
@_data_dir
@click.option("--wipe", is_flag=True, help="Also delete the data folder.")
def down(data_dir: Path, wipe: bool) -> None:
    """Stop the stack. Its data stays, unless --wipe is given."""
    stopped = Stack(data_dir, progress=_Progress().show).down(wipe=wipe)
    _out.print("The stack is down." if stopped else "No stack is running here.")


@click.command()
@_data_dir
@with_remote
def status(remote: Remote, *, data_dir: Path) -> None:
    """Show the parts, and how far topics and views are. The exit code is 1 unless all parts run.

    With --url: how far the topics of this folder's keylane.toml, and all views, are there.
    """
    stack = Stack(data_dir)
    is_elsewhere = stack.state is None or remote.url != stack.http_url
    if is_elsewhere and remote.is_named:
        sys.exit(0 if _show_progress(remote, Path(_DEFAULT_CONFIG)) else 1)
    if not stack.parts:
        click.echo(f"No stack was ever started in {data_dir}: `keylane up` starts one.", err=remote.as_json)
        sys.exit(1)
    _show(stack, as_json=remote.as_json)
    if stack.server.running and stack.state and stack.state.config:
        down = [part.name for part in stack.parts if not part.running]
        _show_progress(remote, Path(stack.state.config), down)
    sys.exit(0 if all(part.running for part in stack.parts) else 1)


def _show_progress(remote: Remote, config: Path, down: Sequence[str] = ()) -> bool:
    """Print what the API says of topics and views; return whether it answered."""
    from keylane_cli import progress  # noqa: PLC0415 - its imports take long

    found = list(progress.read_progress(remote.url, remote.auth, config, down))
    if remote.as_json:
        for each in found:
            click.echo(json.dumps(each._asdict()))
        return all(each.name != "api" for each in found)
    table = Table(box=None, pad_edge=False)
    for column in ("name", "state", "details"):
        table.add_column(column)
    for each in found:
        colour = _COLOURS.get(each.state, "yellow")
        table.add_row(each.name, f"[{colour}]{escape(each.state)}[/]", escape(each.details))
    _out.print()
    _out.print(table)
    return all(each.name != "api" for each in found)


@click.command()
@_data_dir
@click.argument("part")
@click.option("-f", "--follow", is_flag=True, help="Keep printing as the log grows.")
@click.option("-n", "--lines", type=click.IntRange(1), default=50, show_default=True, help="Lines to print.")
def logs(data_dir: Path, part: str, follow: bool, lines: int) -> None:
    """Show the end of a log: kafka, redis-0, ..., job, server or localstack."""
    folder = data_dir / "logs"
    log = folder / f"{part}.log"
    if not log.exists():
        known = ", ".join(sorted(path.stem for path in folder.glob("*.log")))
        raise BadInput(f"no log of {part!r}; logs: {known or 'none yet'}")
    position = log.stat().st_size
    click.echo(processes.tail(log, lines))
    while follow:
        with log.open(encoding="utf-8", errors="replace") as file:
            file.seek(position)
            click.echo(file.read(), nl=False)
            position = file.tell()
        time.sleep(_FOLLOW_S)


@click.command("invoke")
@_data_dir
@click.argument("function")
@click.option(
    "-e", "--event", type=click.Path(path_type=Path), required=True, help="A JSON file, as those in events/."
)
@click.option(
    "--layer",
    type=click.Path(path_type=Path),
    help="A built layer, such as build/layer/python. Default: the sources.",
)
def invoke_function(data_dir: Path, function: str, event: Path, layer: Path | None) -> None:
    """Invoke a function with an event, as Lambda does. The exit code is 1 if the function fails.

    The function uses the stack in the data folder. KEYLANE_ variables of the environment override that.
    """
    from keylane_cli import invoke  # noqa: PLC0415 - its imports take long

    stack = Stack(data_dir)
    variables = invoke.choose_variables(stack.environment() if stack.parts else {}, os.environ)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "function.log"
        given = invoke.describe_function(function, layer, log, variables)
        done = invoke.invoke(given, invoke.read_event(event))
        click.echo(log.read_text(encoding="utf-8", errors="replace"), err=True, nl=False)
    click.echo(f"init {done.init_ms:.0f} ms, duration {done.duration_ms:.1f} ms", err=True)
    click.echo(invoke.render_response(done.response))
    sys.exit(1 if done.response.failed else 0)


def _show(stack: Stack, *, as_json: bool = False) -> None:
    if as_json:
        for name, state, _, address in _rows(stack):
            click.echo(json.dumps({"name": name.strip(), "state": state, "details": address}))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("part", "state", "pid", "address"):
        table.add_column(column)
    for name, state, pids, address in _rows(stack):
        colour = _COLOURS.get(state)
        table.add_row(name, f"[{colour}]{state}[/]" if colour else state, pids, address)
    _out.print(table)


def _show_deployed(deployed: Deployed) -> None:
    _out.print(f"\n{'Deployed' if deployed.changed else 'Nothing changed'}. The API is at:\n  {deployed.url}")
    if deployed.api_key:
        _out.print(f"  with the header x-api-key: {deployed.api_key}")


def _rows(stack: Stack) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, state, process and address of each part, those of others included."""
    state = stack.state
    programs: list[tuple[str, Program, str]] = []
    if state and state.outside_kafka:
        yield "kafka", "outside", "", state.outside_kafka
    else:
        programs.append(("kafka", stack.kafka.program, stack.kafka_bootstrap))
    if state and state.outside_redis:
        yield "redis", "outside", "", state.outside_redis
    else:
        programs += [(f"redis-{i}", node.program, node.address) for i, node in enumerate(stack.redis.nodes)]
    programs.append(("server", stack.server.program, stack.http_url))
    if stack.localstack:
        programs.append(("localstack", stack.localstack.program, stack.localstack.url))
    if state and state.config:
        programs.append(("job", stack.job.program, state.config))
    for name, program, address in programs:
        process = program.process
        now = "up" if process else "down"
        yield name, now, str(process.pid) if process else "", address
        if name == "job" and state and state.metrics_port:
            yield "  metrics", now, "", f"http://{HOST}:{state.metrics_port}/metrics"
