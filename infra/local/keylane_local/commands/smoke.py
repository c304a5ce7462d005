"""`keylane smoke`: the first thing to run against a deployment. It deploys nothing."""

from __future__ import annotations

import json
import os
import sys
import uuid
from dataclasses import asdict
from urllib.parse import urlsplit

import click

from keylane_client.auth import region_of
from keylane_local.commands.api_client import ApiAccess, ApiClient
from keylane_local.commands.smoke_steps import Smoke, SmokeStep
from keylane_local.errors import BadInput


@click.command()
@click.argument("url")
@click.option("--topic", required=True, help="A topic for tests, in keylane.toml: one key is written to it.")
@click.option("--key", help="The key. Default: one that nobody else has.")
@click.option("--api-key", envvar="KEYLANE_API_KEY", help="With Authorization=API_KEY. Or KEYLANE_API_KEY.")
@click.option(
    "--authorization",
    envvar="KEYLANE_AUTHORIZATION",
    help="With COGNITO or LAMBDA: the header, as in 'Bearer abc'. Or KEYLANE_AUTHORIZATION.",
)
@click.option("--sign", is_flag=True, help="With IAM: sign requests with the AWS credentials at hand.")
@click.option("--region", envvar="AWS_REGION", help="Of the signature. Default: as the URL has it.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1, 600),
    default=60.0,
    show_default=True,
    help="Seconds to wait until the state has a position.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def smoke(  # noqa: PLR0913 (the options of a command)
    *,
    url: str,
    topic: str,
    key: str | None,
    api_key: str | None,
    authorization: str | None,
    sign: bool,
    region: str | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Write, wait for, read and delete one key of a topic at URL, and say what is wrong.

    The exit code is 0 if all went well, 1 if not.
    """
    if sign:
        region = region_of(urlsplit(url).netloc) or region
        if not region:
            raise BadInput("the URL does not name a region: use --region")
    access = ApiAccess(api_key, authorization, region if sign else None)
    steps: list[SmokeStep] = []
    show = steps.append if as_json else _show
    key = key or f"keylane-smoke-{uuid.uuid4().hex[:12]}"
    went_well = Smoke(ApiClient(url, access), topic, key, timeout_s, show).run()
    if as_json:
        document = {"url": url, "topic": topic, "key": key, "ok": went_well}
        click.echo(json.dumps(document | {"steps": list(map(asdict, steps))}, indent=2))
    else:
        click.echo("All is well." if went_well else "Something is wrong: see above.")
    sys.exit(os.EX_OK if went_well else 1)


def _show(step: SmokeStep) -> None:
    result = "failed" if step.fault else "ok"
    click.echo(f"{result:<6}  {step.name:<9}  {step.took_ms:>6} ms  {step.did or step.fault}")
    if step.advice:
        click.echo(f"        {step.advice}")
