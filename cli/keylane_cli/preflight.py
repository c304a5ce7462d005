"""What `keylane up` looks at before it starts anything: programs, and a Kafka and a Redis of others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from keylane.config.settings import is_set
from keylane.config.table import SETTINGS
from keylane.errors import KeylaneError
from keylane_cli import doctor_checks
from keylane_cli.survey import cluster
from keylane_local import env_file, tools
from keylane_local.errors import BadInput, StackError, ToolMissing
from keylane_local.stack import topics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from keylane_local.stack.plan import StackOptions


def check(options: StackOptions, config: Path | None) -> Mapping[str, int]:
    """Raise an error that names all that is missing, before anything starts.

    Returns the topics of a Kafka from outside with their partition counts, none of one of the stack's.
    """
    missing = list(_missing_programs(options))
    if missing:
        raise ToolMissing("; ".join(missing))
    if not options.outside_kafka:
        return {}
    given = {**os.environ, env_file.KAFKA: options.outside_kafka, env_file.REDIS: options.outside_redis or ""}
    wanted = topics.load_topics(config) if config and not _creates(config) else {}
    try:
        present, unknown = cluster.find_topics(given, wanted)
    except KeylaneError as error:
        raise StackError(str(error)) from error
    if options.outside_redis:
        _check_redis(given)
    if unknown:
        missing_topics = "; ".join(unknown)
        end = "" if missing_topics.endswith("?") else "."
        advice = f"Correct {config}, or let the job create it with [job] create_topics = true"
        raise BadInput(f"{missing_topics}{end} {advice}")
    return present


def _check_redis(variables: Mapping[str, str]) -> None:
    """Raise StackError for a Redis that evicts keys: the state is not a cache. Some do not let one ask."""
    for found in doctor_checks.check_redis(variables):
        if found.result == "failed":
            raise StackError(f"{found.name}: {found.found}: {found.advice}")


def _creates(config: Path) -> bool:
    """Whether the job creates topics, as it decides it itself."""
    if is_set(os.environ, "KEYLANE_CREATE_TOPICS"):
        return bool(SETTINGS.read(os.environ, "KEYLANE_CREATE_TOPICS"))
    return topics.load_config(config).job.create_topics


def _missing_programs(options: StackOptions) -> Iterator[str]:
    if (options.job or not options.outside_kafka) and not tools.find_java():
        yield (
            f"Java {tools.MIN_JAVA} or newer is neither in JAVA_HOME nor on PATH (Debian, Ubuntu:"
            " sudo apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)"
        )
    if not options.outside_redis and not tools.find_redis():
        wanted = ".".join(map(str, tools.MIN_REDIS))
        yield (
            f"no redis-server or valkey-server {wanted} or newer is on PATH (Debian, Ubuntu: sudo apt-get"
            " install redis-server; macOS: brew install redis), or name one in KEYLANE_REDIS_NODES"
        )
