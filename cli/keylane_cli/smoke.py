"""`keylane smoke`: the first thing to run against a deployment. It deploys nothing."""

import os
import sys
import uuid
from dataclasses import asdict

import click

from keylane_cli.smoke_steps import REQUEST_S, Smoke, SmokeStep
from keylane_client import NO_RETRIES, ClientOptions
from keylane_client.cli.access import Remote, with_access
from keylane_client.cli.printing import print_json, printable


@click.command()
@click.argument("url", envvar="KEYLANE_URL", required=False)
@with_access
@click.option("--topic", required=True, help="A topic for tests, in keylane.toml: one key is written to it.")
@click.option("--key", help="The key. Default: one that nobody else has.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1, 600),
    default=60.0,
    show_default=True,
    help="Seconds to wait until the state has a position.",
)
def smoke(remote: Remote, topic: str, key: str | None, timeout_s: float) -> None:
    """Write, wait for, read and delete one key of a topic at URL, and say what is wrong.

    The exit code is 0 if all went well, 1 if not.
    """
    steps: list[SmokeStep] = []
    show = steps.append if remote.as_json else _show
    key = key or f"keylane-smoke-{uuid.uuid4().hex[:12]}"
    # A step that would succeed at its second attempt is a finding.
    with remote.client(ClientOptions(timeout_s=REQUEST_S, retries=NO_RETRIES)) as client:
        went_well = Smoke(client, topic, key, timeout_s, show).run()
    if remote.as_json:
        document = {"url": remote.url, "topic": topic, "key": key, "ok": went_well}
        print_json(document | {"steps": list(map(asdict, steps))})
    else:
        click.echo("All is well." if went_well else "Something is wrong: see above.")
    sys.exit(os.EX_OK if went_well else 1)


def _show(step: SmokeStep) -> None:
    result = "failed" if step.fault else "ok"
    click.echo(f"{result:<6}  {step.name:<9}  {step.took_ms:>6} ms  {printable(str(step.did or step.fault))}")
    if step.advice:
        click.echo(f"        {step.advice}")
