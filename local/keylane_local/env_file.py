"""`keylane.env`: a project's addresses and secrets, a NAME=VALUE each line. Standard library only.

systemd (EnvironmentFile), Docker (--env-file) and Compose (env_file) read the same file.
"""

import json
import re
import tomllib
from collections.abc import MutableMapping
from pathlib import Path

from keylane_local.errors import BadInput

NAME = "keylane.env"
KAFKA, REDIS = "KEYLANE_KAFKA_BOOTSTRAP", "KEYLANE_REDIS_NODES"
"""With these, parts use a Kafka and a Redis Cluster that exist."""
_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")


def beside(config: Path | None) -> Path:
    """Return the path of the file that belongs to a keylane.toml, by default to that of this folder."""
    return (config.parent if config else Path()) / NAME


def read(file: Path) -> dict[str, str]:
    """Return the variables of the file, none if it does not exist. Raises BadInput, which names the line."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} can't be read: {error}") from error
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        if match is None:
            # The line isn't shown: it may have a secret.
            raise BadInput(f"{file}:{number}: is not NAME=VALUE")
        found[match[1]] = _unquoted(match[2].strip())
    return found


def apply(file: Path, environment: MutableMapping[str, str]) -> None:
    """Add the file's variables to the environment, whose own ones win."""
    for name, value in read(file).items():
        environment.setdefault(name, value)


def apply_placement(config: Path, environment: MutableMapping[str, str]) -> None:
    """Add the variables by which writes go to the partitions where a keylane.toml says that keys are.

    The environment wins. The file is the job's to check: only what is there is read. Raises BadInput.
    """
    try:
        topics = tomllib.loads(config.read_text(encoding="utf-8-sig")).get("topics", {})
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise BadInput(f"{config} can't be read: {error}") from error
    for field, variable in (
        ("partitioner", "KEYLANE_PARTITIONERS"),
        ("partition_by", "KEYLANE_PARTITION_BY"),
    ):
        given = {name: topic[field] for name, topic in topics.items() if field in topic}
        if given:
            environment.setdefault(variable, json.dumps(given))


def _unquoted(value: str) -> str:
    """Without the quotes that systemd and Compose remove, too."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
