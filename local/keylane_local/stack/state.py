"""Ports and settings of a stack, kept as JSON in its data folder, where later commands find them."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from keylane_local.errors import BadInput
from keylane_local.process.ports import HOST

_FILE = "stack.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class StackState:
    """Ports and settings of the stack in one data folder. `host`: the address of Kafka and Redis.

    `http_host` is that of the server; 0.0.0.0: all of them.
    `outside_kafka` and `outside_redis` are the addresses of those that the stack does not start.
    `metrics_port`: where the job serves its metrics for Prometheus; None: it does what its file says.
    """

    kafka_port: int
    controller_port: int
    redis_ports: list[tuple[int, int]]
    http_port: int
    shards: int
    replicas: int
    appendonly: bool
    config: str | None
    localstack_port: int | None = None
    host: str = HOST
    outside_kafka: str | None = None
    outside_redis: str | None = None
    metrics_port: int | None = None
    http_host: str = HOST

    def save(self, data: Path) -> None:
        """Write it to the folder `data`, atomically."""
        data.mkdir(parents=True, exist_ok=True)
        new = data / f"{_FILE}.new"
        new.write_text(json.dumps({"version": _VERSION, **asdict(self)}, indent=1), encoding="utf-8")
        new.replace(data / _FILE)

    @classmethod
    def load(cls, data: Path) -> Self | None:
        """Read it from the folder `data`; return None if there is none; raise BadInput if it is broken."""
        try:
            fields = json.loads((data / _FILE).read_text(encoding="utf-8"))
            # An older version may have had more.
            fields = {name: value for name, value in fields.items() if name in cls.__dataclass_fields__}
            fields["redis_ports"] = [(int(port), int(bus)) for port, bus in fields["redis_ports"]]
            return cls(**fields)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{data / _FILE} is not readable ({error}): remove the folder {data}") from error
