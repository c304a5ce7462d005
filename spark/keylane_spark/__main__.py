"""`python -m keylane_spark --config keylane.toml`: the job as a process.

Addresses come from the environment, as for the functions (keylane/settings.py), and:
    KEYLANE_JARS         folder with the Kafka connector's jars, where the deployment does not bring them
    KEYLANE_CHECKPOINT   folder on the driver's own disk for Spark's offset log (nothing of lasting use)

Exit codes: 0 stopped, 2 the config or the environment is wrong, 3 another writer has taken over,
4 something that does not pass by itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from keylane.adapters.kafka_broker import Broker
from keylane.errors import BadConfig, Fenced, KeylaneError
from keylane.ports import Clock
from keylane.settings import redis_settings
from keylane.settings_kafka import bootstrap as kafka_bootstrap
from keylane.variables import SettingsError
from keylane_spark import config, job, session
from keylane_spark.query import Parts

if TYPE_CHECKING:
    from collections.abc import Mapping


def main(arguments: list[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Run until SIGTERM or SIGINT; the exit code is in the module's docstring."""
    parser = argparse.ArgumentParser(prog="keylane_spark", description="Writes topics into their lanes.")
    parser.add_argument("--config", type=Path, default=Path("keylane.toml"), help="default: keylane.toml")
    given = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        topics = config.load(given.config)
        bootstrap, redis = kafka_bootstrap(environment), redis_settings(environment)
    except (BadConfig, SettingsError) as error:
        _say(str(error))
        return 2
    jars = environment.get("KEYLANE_JARS")
    checkpoint = environment.get("KEYLANE_CHECKPOINT") or tempfile.mkdtemp(prefix="keylane-")
    spark = session.start(Path(jars) if jars else None, topics.spark)
    try:
        broker = Broker(bootstrap, {}, committed_only=topics.job.isolation == "read_committed")
        parts = Parts(topics, spark, broker, bootstrap, redis, Path(checkpoint), Clock(), _say, _write)
        job.run(parts, stop)
    except Fenced as error:
        _say(f"stops: {error}")
        return 3
    except KeylaneError as error:
        _say(f"stops: {error}")
        return 4
    finally:
        spark.stop()
    _say("stopped")
    return 0


def _say(text: str) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    _write(f"keylane: {text}   [{now}]")


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
