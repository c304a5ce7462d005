"""How far a load came: a small file beside the data, so that the same command goes on where it broke off."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from keylane_client.cli.errors import BadArgument, CommandFailed

SUFFIX = ".keylane-load.json"


@dataclass(frozen=True, slots=True)
class LoadIdentity:
    """What is loaded: a file as it is now, into a topic of an API, by a key column."""

    url: str
    topic: str
    key: str
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path, url: str, topic: str, key: str) -> "LoadIdentity":
        """Return the identity of a load of the file."""
        status = path.stat()
        return cls(url, topic, key, status.st_size, status.st_mtime_ns)


class LoadState:
    """The rows of a file that Kafka has acknowledged, or that were skipped; of a pipe nothing is kept."""

    def __init__(self, path: Path, identity: LoadIdentity) -> None:
        self._path = path.with_name(path.name + SUFFIX)
        self._identity = identity
        self.is_kept = path.is_file() or not path.exists()

    def load_rows(self) -> int:
        """Return how many rows an earlier run has done. Raises BadArgument if it loaded something else."""
        if not self.is_kept:
            return 0
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            rows, identity = int(found.pop("rows")), LoadIdentity(**found)
        except FileNotFoundError:
            return 0
        except (ValueError, KeyError, TypeError) as error:
            raise BadArgument(f"{self._path} cannot be read ({error}): begin again with --restart") from error
        if identity != self._identity:
            raise BadArgument(
                f"{self._path} is of another load, or the file has changed since: begin again with --restart"
            )
        return rows

    def save_rows(self, rows: int) -> None:
        """Write how many rows are done, atomically. Raises CommandFailed where that can't be written."""
        if not self.is_kept:
            return
        new = self._path.with_name(self._path.name + ".new")
        try:
            new.write_text(json.dumps({**asdict(self._identity), "rows": rows}), encoding="utf-8")
            new.replace(self._path)
        except OSError as error:
            what = f"{rows} rows are done, but {self._path.name} can't be written: {error.strerror}"
            raise CommandFailed(f"{what}. Copy the file to a folder that is yours") from error

    def remove(self) -> None:
        """Forget it: the load is complete, or begins again."""
        if self.is_kept:
            self._path.unlink(missing_ok=True)
