"""A broker's new log folder, formatted without Kafka's tool, which takes a JVM and a second of CPU.

The tool writes two files: the folder's ids, and the levels of the release's features. The levels are those of
any other folder of the release, so they are kept from the first one that the tool has formatted.
"""

import base64
import contextlib
import shutil
import uuid
from pathlib import Path

from keylane_local.tools import tools_dir

_IDS, _LEVELS = "meta.properties", "bootstrap.checkpoint"


def is_formatted(data: Path) -> bool:
    """Return whether this is a log folder of Kafka."""
    return (data / _IDS).exists()


def format_as_before(data: Path, node_id: int, cluster_id: str) -> bool:
    """Format a log folder; return False if no folder of this release has been kept."""
    kept = _kept_levels()
    if kept is None or not kept.exists():
        return False
    data.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(kept, data / _LEVELS)
    ids = {"version": 1, "node.id": node_id, "cluster.id": cluster_id, "directory.id": new_id()}
    new = data / f"{_IDS}.new"
    new.write_text("".join(f"{name}={value}\n" for name, value in ids.items()), encoding="latin-1")
    new.replace(data / _IDS)  # the last step: a folder without it is formatted again
    return True


def keep_format(data: Path) -> None:
    """Keep what the tool has written for the next folder, where the folder of tools can be written to."""
    kept = _kept_levels()
    if kept is None:
        return
    with contextlib.suppress(OSError):
        new = kept.with_suffix(f".{uuid.uuid4().hex}")
        shutil.copyfile(data / _LEVELS, new)
        new.replace(kept)


def new_id() -> str:
    """Return a random id as Kafka writes them: 16 bytes in URL-safe base64, without a leading "-"."""
    # Kafka's tool would read a leading "-" as an option.
    found = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return f"A{found[1:]}" if found.startswith("-") else found


def _kept_levels() -> Path | None:
    """Return where the levels of the installed release are kept; None if no release is installed."""
    jar = next(iter(sorted((tools_dir() / "jars").glob("kafka_*.jar"))), None)
    return tools_dir() / f"{jar.stem}.checkpoint" if jar else None
