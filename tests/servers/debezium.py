"""Debezium's connector for PostgreSQL in Kafka Connect's standalone worker."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

from tests.servers.own import eventually
from tests.servers.postgres import USER

from keylane_local.process.ports import HOST
from keylane_local.process.program import Program
from keylane_local.tools import find_java, tools_dir

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.servers.schema_registry import Registry

START_TIMEOUT_S = 120
_MAIN_CLASS = "org.apache.kafka.connect.cli.ConnectStandalone"
_JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_WORKER = {
    "key.converter": _JSON,
    "key.converter.schemas.enable": "false",
    "value.converter": _JSON,
    "value.converter.schemas.enable": "false",
    # It finds connectors by reading all classes, unless it trusts what they say of themselves.
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "1000",
}
_CONNECTOR = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "filtered",
    "database.hostname": HOST,
    "database.user": USER,
    "database.password": "",
    "database.dbname": USER,
    "decimal.handling.mode": "string",
}
_AVRO = {
    "": "io.apicurio.registry.utils.converter.AvroConverter",
    "apicurio.registry.auto-register": "true",
    # Confluent's wire format, with the ids of Confluent's API: by default they are in headers.
    "apicurio.registry.headers.enabled": "false",
    "apicurio.registry.as-confluent": "true",
    "apicurio.registry.use-id": "contentId",
}


def avro_converters(registry: Registry) -> dict[str, str]:
    """Return a connector's settings for keys and values in Avro, with the subjects of Confluent's default."""
    settings = _AVRO | {"apicurio.registry.url": registry.own_url}
    return {
        f"{part}.converter.{name}".removesuffix("."): value
        for part in ("key", "value")
        for name, value in settings.items()
    }


class Debezium:
    """The worker with its connectors, each by the prefix of its topics. Whatever guards `data` ends it."""

    def __init__(
        self,
        data: Path,
        bootstrap: str,
        port: int,
        database: int,
        connectors: Mapping[str, Mapping[str, str]],
    ) -> None:
        """`database`: the port of PostgreSQL. `connectors`: settings beside those that all have."""
        folder, self._url, self._names = data / "connect", f"http://{HOST}:{port}", list(connectors)
        folder.mkdir()
        worker = _WORKER | {"bootstrap.servers": bootstrap, "listeners": self._url}
        self._offsets = folder / "offsets"
        worker["offset.storage.file.filename"] = str(self._offsets)
        files = [_write(folder / "worker.properties", worker)]
        for name, own in connectors.items():
            names = {"name": name, "topic.prefix": name, "slot.name": name, "publication.name": name}
            settings = _CONNECTOR | names | {"database.port": str(database)} | own
            files.append(_write(folder / f"{name}.properties", settings))
        java, jars = find_java(), tools_dir() / "databases"
        assert java is not None
        self.program = Program(
            "connect",
            [java, *_JVM, "-cp", f"{jars.absolute()}/*", _MAIN_CLASS, *files],
            data / "run" / "connect.json",
            data / "logs" / "connect.log",
        )

    def start(self) -> None:
        """Start it, and wait until all connectors run."""
        self.program.start()
        self.program.wait_until(self._runs, START_TIMEOUT_S)

    def kill(self) -> None:
        """End it as a crash would: what it sent since it last noted its offsets, it sends again.

        One that has noted none takes a new snapshot, which lacks the rows that were deleted meanwhile.
        """
        eventually(self._has_noted_offsets)
        self.program.kill()

    def _has_noted_offsets(self) -> bool:
        noted = self._offsets.read_bytes() if self._offsets.exists() else b""
        return all(b'"%b"' % name.encode() in noted for name in self._names) and b'"snapshot"' not in noted

    def _runs(self) -> bool:
        return all(self._tasks(name) == ["RUNNING"] for name in self._names)

    def _tasks(self, name: str) -> list[str]:
        try:
            with urllib.request.urlopen(f"{self._url}/connectors/{name}/status", timeout=5) as answer:  # noqa: S310 (our own)
                tasks = json.load(answer)["tasks"]
        except OSError:
            return []
        failed = [task["trace"] for task in tasks if task["state"] == "FAILED"]
        assert not failed, failed[0]
        return [task["state"] for task in tasks]


def _write(file: Path, settings: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file
