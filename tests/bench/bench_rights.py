"""What rights cost: look-ups by a token with rules, and the authorizer's first request.

`rights-lookup`: GETs of random keys from one process of `keylane serve`, in turns by a static token, by a
JWT whose rule permits the topic, and by one whose rule permits keys by their prefix; beside them a server
without tokens. `rights-coldstart`: the authorizer function in fresh processes, from import to its answer, by
a static token and by a JWT whose keys are in the policy.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import stage
import state
from bench_serve import WARM_UP_S, contender, lookup_script
from harness import ROOT, ResultRow, parse, report, spread
from peers import UNIT, Load, in_turns, load, measured, require_wrk
from state import event_of
from tests.support.issuers import AUDIENCE, NAME, SigningKey, claims, jwks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.servers.standing import StandingServer

STATIC, WHOLE, PREFIX, NOBODY = "a static token", "a JWT, the topic", "a JWT, keys by prefix", "no tokens"
SCOPES = {WHOLE: "whole", PREFIX: "prefix"}
TOKEN = "a-token-of-these-benchmarks"
TOPIC = state.LAYOUT.topic
VALID_S = 3_600
TIMED = """
from time import perf_counter as t
b = t()
import handler
i = t()
found = handler.lambda_handler({event!r}, None)
f = t()
print(i - b, f - b, found["policyDocument"]["Statement"][0]["Effect"])
"""


def policy(key: SigningKey) -> str:
    """Return the access policy: a static token, and rules for the tokens of an issuer by their `scope`."""
    issuer = {"issuer": NAME, "audience": [AUDIENCE], "algorithms": [key.algorithm], "jwks": jwks(key)}
    rule = {"issuer": NAME, "read": [TOPIC]}
    return json.dumps(
        {
            hashlib.sha256(TOKEN.encode()).hexdigest(): {"name": "static", "read": [TOPIC]},
            "issuers": [issuer],
            "rules": [
                {**rule, "name": WHOLE, "when": {"scope": "whole"}},
                {**rule, "name": PREFIX, "when": {"scope": "prefix"}, "key": "N*"},
            ],
        }
    )


def tokens(key: SigningKey) -> dict[str, str]:
    """Return the tokens by the names of their rows."""
    until_s = claims()["iat"] + VALID_S
    issued = {name: key.token(claims(scope=scope, exp=until_s)) for name, scope in SCOPES.items()}
    return {STATIC: TOKEN, **issued}


def lookups(nodes: str, key: SigningKey, chosen: argparse.Namespace) -> list[ResultRow]:
    """Return the figures of look-ups, medians of the rounds."""
    secured = state.environment(nodes) | {"KEYLANE_ACCESS": policy(key)}
    with (
        stage.standing_server(state.environment(nodes), 1) as free,
        stage.standing_server(secured, 1, "--authorization", "tokens") as running,
    ):

        def measure(server: StandingServer, token: str) -> dict[str, float]:
            header = f'wrk.headers["Authorization"] = "Bearer {token}"\n' if token else ""
            script = header + lookup_script(chosen.keys)
            load(server.url, script, chosen.connections, WARM_UP_S)
            _, found = measured(contender(server, {}), Load("", script, chosen.connections, chosen.seconds))
            return found

        given = {name: partial(measure, running, token) for name, token in tokens(key).items()}
        return in_turns({NOBODY: partial(measure, free, "")} | given, chosen.rounds)


def first_requests(key: SigningKey, processes: int) -> list[ResultRow]:
    """Return the milliseconds of the authorizer's first request, of each token."""
    environment = os.environ | {
        "KEYLANE_ACCESS": policy(key),
        "PYTHONPATH": str(ROOT / "layers/keylane/python"),
    }
    given = tokens(key)
    samples: dict[str, list[float]] = {name: [] for name in given}
    for number in range(processes + 1):
        for name, token in given.items():
            done = subprocess.run(
                [sys.executable, "-c", TIMED.format(event=_event(token))],
                cwd=ROOT / "functions/authorizer",
                env=environment,
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
            _, answered_s, effect = done.stdout.splitlines()[-1].split()
            if effect != "Allow":
                sys.exit(f"{name} was refused")
            if number:  # the first process writes the bytecode
                samples[name].append(float(answered_s) * 1000)
    return [ResultRow(name, spread(taken)) for name, taken in samples.items()]


def _event(token: str) -> dict[str, Any]:
    event = event_of("GET", f"/topics/{TOPIC}/keys/N00001AA", headers=(("Authorization", f"Bearer {token}"),))
    return event | {"methodArn": "arn:aws:execute-api:eu-central-1:1:a/v1/GET/topics"}


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--keys", type=int, default=20_000)
    options.add_argument("--seconds", type=int, default=10)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--connections", type=int, default=48)
    options.add_argument("--processes", type=int, default=20)
    options.add_argument("--value-bytes", type=int, default=184)
    chosen = parse(options, arguments)
    require_wrk()
    key = SigningKey()
    with stage.cluster() as nodes:
        state.fill(nodes, chosen.keys, chosen.value_bytes)
        rows = lookups(nodes, key, chosen)
    aim = "at most 5 us more than by a static token"
    report("rights-lookup", UNIT, rows, reference=STATIC, settings=vars(chosen), aim=aim)
    report(
        "rights-coldstart",
        "ms",
        first_requests(key, chosen.processes),
        reference=STATIC,
        settings=vars(chosen),
        aim="at most 40 ms more than by a static token",
    )


if __name__ == "__main__":
    main()
