"""PostgreSQL with the orders of bench_find.py, and the simplest HTTP in front of it.

`application` is an ASGI application for granian, the server that `keylane serve` has, too: a GET is one
prepared statement over a kept connection, and PostgreSQL makes the JSON of the answer. It is for benchmarks
alone: a request names its condition in SQL.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from peers import wait_until
from stage import own_folder
from tests.servers.postgres import USER, Postgres

from keylane_local.process.ports import HOST, Ports

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PORT = "KEYLANE_PEER_POSTGRES_PORT"
START_S = 30
SETTINGS = ("shared_buffers=4GB", "max_wal_size=8GB", "synchronous_commit=off")
"""A quarter of the machine's memory is usual; the others make filling faster."""
TABLE = """
create table {name} (
  key text primary key, customer text collate "C" not null, status text not null, amount numeric not null,
  value json not null
);
"""
INDEXES = """
create index {name}_customer on {name} (customer);
create index {name}_status on {name} (status);
create index {name}_amount on {name} (amount);
create index {name}_by_customer on {name} (customer, amount);
"""
SELECT = """
select coalesce(json_agg(json_build_object('key', key, 'value', value)), '[]')::text
from (select key, value from {name} where {where}) as found
"""
LOADED = "create temporary table loaded (key text, value json) on commit drop"
FROM_LOADED = """
insert into {name}
select key, value->>'customer', value->>'status', (value->>'amount')::numeric, value from loaded
"""


def is_there() -> bool:
    """Return whether PostgreSQL and its client are installed; say what is missing."""
    missing = [] if importlib.util.find_spec("psycopg") else ["pip install 'psycopg[binary]'"]
    if not list(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
        missing.append("apt-get install --no-install-recommends postgresql")
    if missing:
        print(f"PostgreSQL is left out: {', '.join(missing)}")
    return not missing


class Rows:
    """A table with a B-tree for each index of the topic, which may grow."""

    def __init__(self, port: int, name: str) -> None:
        self._port = port
        self._name = name
        self._connection = _connect(port)
        self._is_new = True
        self._connection.execute(TABLE.format(name=name))

    def add(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Write rows (key, value). The first ones are indexed once they are all there."""
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(LOADED)
            with cursor.copy("copy loaded from stdin") as copy:
                for key, value in records:
                    copy.write_row((key.decode(), value.decode()))
            cursor.execute(FROM_LOADED.format(name=self._name))
        if self._is_new:
            self._connection.execute(INDEXES.format(name=self._name))
            self._is_new = False
        self._connection.execute(f"vacuum analyze {self._name}")
        self._connection.execute("checkpoint")

    def ask(self, where: str, arguments: Sequence[str]) -> str:
        """Return the rows of a condition as JSON."""
        return _ask(self._connection, self._name, where, arguments)

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """Yield the address of a server of the table; it stops with the block."""
        port = Ports().any()
        words = ("-m", "granian", "--interface", "asgi", "--workers", "1", "--no-ws", "--loop", "uvloop")
        command = [sys.executable, *words, "--log-level", "error", "--host", HOST, "--port", str(port)]
        variables = {**os.environ, PORT: str(self._port), "PYTHONPATH": str(Path(__file__).parent)}
        process = subprocess.Popen([*command, "peer_find:application"], env=variables)
        try:
            wait_until(lambda: _answers(port, f"/{self._name}?where=false"), START_S, "no answer")
            yield f"http://{HOST}:{port}"
        finally:
            process.terminate()
            process.wait(30)

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def rows(name: str) -> Iterator[Rows]:
    """Yield an empty table in a database of its own, which is removed with the block."""
    with own_folder() as data:
        server = Postgres(data, Ports().any(), SETTINGS)
        server.start()
        with contextlib.closing(server), contextlib.closing(Rows(server.port, name)) as found:
            yield found


def _connect(port: int) -> Any:
    import psycopg  # noqa: PLC0415 (only here is it required)

    return psycopg.connect(
        f"host={HOST} port={port} user={USER} dbname=postgres", autocommit=True, prepare_threshold=1
    )


def _ask(connection: Any, name: str, where: str, arguments: Sequence[str]) -> str:
    found: str = connection.execute(SELECT.format(name=name, where=where), arguments).fetchone()[0]
    return found


def _answers(port: int, target: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", target)
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


@cache
def _connection() -> Any:
    return _connect(int(os.environ[PORT]))


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer GET /TABLE?where=CONDITION&of=ARGUMENT."""
    if scope["type"] != "http":
        return
    asked = parse_qsl(scope["query_string"].decode())
    where = next(value for name, value in asked if name == "where")
    arguments = [value for name, value in asked if name == "of"]
    body = _ask(_connection(), scope["path"].strip("/"), where, arguments).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
