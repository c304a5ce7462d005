"""`keylane job`: the Spark job alone, in the foreground, as a unit file or a container runs it."""

import os
import signal
from pathlib import Path

import click

from keylane_cli.options import with_config
from keylane_local import env_file
from keylane_local.errors import BadInput, ToolMissing
from keylane_local.tools import MIN_JAVA, find_java, tools_dir


@click.command()
@with_config
def job(config: Path) -> None:
    """Run the Spark job in the foreground, until SIGTERM.

    It takes the KEYLANE_ variables of the environment, and those of keylane.env beside the configuration.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the job handles it, before it reads its file
    if not config.exists():
        raise BadInput(f"{config} does not exist: `keylane new` writes one, --config names another")
    env_file.apply(env_file.beside(config), os.environ)
    java = find_java()
    if not java:
        raise ToolMissing(f"Java {MIN_JAVA} or newer is not on PATH or in JAVA_HOME: run `make setup`")
    # Spark would prefer the Java of JAVA_HOME, however old, to that of PATH.
    os.environ["JAVA_HOME"] = str(Path(java).resolve().parents[1])
    os.environ.setdefault("KEYLANE_JARS", str(tools_dir() / "jars"))
    from keylane_spark.__main__ import run  # noqa: PLC0415 - its imports take long

    run(["--config", str(config)])
