"""`keylane up --host ADDRESS`: what containers need to reach the stack, and a warning."""

import json
from pathlib import Path

import click

from keylane_local.process.ports import HOST
from keylane_local.stack.stack import Stack
from keylane_local.tools import project_root

_TEXT = """
Warning: Kafka and Redis listen on {host} without passwords. Whoever reaches this address can read and delete
all their data. `keylane down`, then `keylane up --host {loopback}` hides them again.
Containers reach them with the variables of {file}:
  sam local invoke QueryFunction --event events/query/get_key.json --env-vars {file} --docker-network bridge
"""


def explain(stack: Stack) -> None:
    """Write the variables for `sam local`, and print how to use them, if the stack is not hidden."""
    if stack.state is None or stack.state.host == HOST:
        return
    file = write_variables(stack)
    click.echo(_TEXT.format(host=stack.state.host, loopback=HOST, file=file))


def write_variables(stack: Stack) -> Path:
    """Write `sam-local.json` into the data folder, and return its path: events/env.json with this stack."""
    variables = json.loads((project_root() / "events" / "env.json").read_bytes())
    variables["Parameters"] |= {
        "KEYLANE_KAFKA_BOOTSTRAP": stack.kafka_bootstrap,
        "KEYLANE_REDIS_NODES": stack.redis_nodes,
    }
    file = stack.data / "sam-local.json"
    file.write_text(json.dumps(variables, indent=2), encoding="utf-8")
    return file
