"""The tables, statements at random about them, and what a client has to find of each row."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

SCHEMA = """\
create table orders (id int primary key, status text, price numeric(9, 2), op text);
create table items (region text, number bigint, qty int, primary key (region, number));
create table devices (id uuid primary key, name text, active boolean);
create table prices (price numeric(9, 2) primary key, note text);
create table docs (id bigint primary key, body text, version int);
alter table docs alter body set storage external, replica identity full;
create table papers (id int primary key, body text, version int);
alter table papers alter body set storage external;
create table marks (id int primary key, round int);
"""
_KEYS = 40
_UUIDS = [uuid.UUID(int=number * 0x1234567890ABCDEF1234567) for number in range(_KEYS)]


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `keys`: all that rows may have, as columns. `row`: SQL of a row as JSON, as its topic has it.

    `values`: columns that are no part of the key, at random, as SQL.
    """

    name: str
    keys: Sequence[dict[str, Any]]
    row: str
    values: Callable[[random.Random], dict[str, str]]

    def statement(self, source: random.Random) -> str:
        """Return an upsert, an update of a part of a row, a deletion, or an update of the key."""
        key, other = (_sql(each) for each in source.sample(self.keys, 2))
        values, kind = self.values(source), source.random()
        if kind < 0.45:
            columns = key | values
            sets = ", ".join(f"{name} = {value}" for name, value in values.items())
            return (
                f"insert into {self.name} ({', '.join(columns)}) values ({', '.join(columns.values())}) "
                f"on conflict ({', '.join(key)}) do update set {sets};"
            )
        if kind < 0.65:
            column, value = source.choice(list(values.items()))
            return f"update {self.name} set {column} = {value} where {_where(key)};"
        if kind < 0.9:
            return f"delete from {self.name} where {_where(key)};"
        sets = ", ".join(f"{name} = {value}" for name, value in other.items())
        free = f"not exists (select from {self.name} where {_where(other)})"
        return f"update {self.name} set {sets} where {_where(key)} and {free};"

    def key_of(self, columns: dict[str, Any]) -> bytes:
        """Return the key of a record, as Connect's JSON converter writes it."""
        return json.dumps(columns, separators=(",", ":")).encode()


def _sql(key: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) if isinstance(value, int) else f"'{value}'" for name, value in key.items()}


def _where(key: dict[str, str]) -> str:
    return " and ".join(f"{name} = {value}" for name, value in key.items())


def _word(source: random.Random) -> str:
    return source.choice(["null", "'new'", "'paid'", "'it''s \"sent\"'", "'z\u00fcrich'", '\'{"op":"d"}\''])


def _body(source: random.Random) -> str:
    """A value that PostgreSQL keeps outside of the row, or a short one."""
    return f"'{source.randbytes(2_000).hex()}'" if source.random() < 0.7 else "'short'"


TABLES = (
    Table(
        "orders",
        [{"id": number} for number in range(_KEYS)],
        "json_build_object('id', id, 'status', status, 'price', price::text, 'op', op)",
        lambda source: {
            "status": _word(source),
            "price": f"{source.randrange(10_000)}.{source.randrange(100):02d}",
            "op": source.choice(["'d'", "'c'", "null"]),
        },
    ),
    Table(
        "items",
        [{"region": region, "number": number} for region in ("eu", "us|1") for number in range(_KEYS // 2)],
        "json_build_object('region', region, 'number', number, 'qty', qty)",
        lambda source: {"qty": str(source.randrange(100))},
    ),
    Table(
        "devices",
        [{"id": str(each)} for each in _UUIDS],
        "json_build_object('id', id, 'name', name, 'active', active)",
        lambda source: {"name": _word(source), "active": source.choice(["true", "false", "null"])},
    ),
    Table(
        "prices",
        [{"price": f"{number}.50"} for number in range(_KEYS)],
        "json_build_object('price', price::text, 'note', note)",
        lambda source: {"note": _word(source)},
    ),
    Table(
        "docs",
        [{"id": 2**40 + number} for number in range(_KEYS)],
        "json_build_object('id', id, 'body', body, 'version', version)",
        lambda source: {"body": _body(source), "version": str(source.randrange(1000))},
    ),
)


_ORDERS = """\
select json_build_object('key', status, 'n', count(*), 'marked', count(op), 'total', sum(price),
  'mean', round(avg(price), 9)) from orders where status is not null group by status;
"""
GROUPS = {
    "shop_by_status": _ORDERS,
    "flat_by_status": _ORDERS,
    "avro_by_status": _ORDERS,
    "by_region": """\
select json_build_object('key', region, 'n', count(*), 'total', sum(qty)) from items where qty >= 50
  group by region;
""",
    "by_note": """\
select json_build_object('key', note, 'n', count(*), 'total', sum(price)) from prices where note is not null
  group by note;
""",
}
"""What each view has to be, as SQL."""


def statements(source: random.Random, count: int) -> str:
    """Return so many statements about all tables, each a transaction of its own."""
    return "\n".join(source.choice(TABLES).statement(source) for _ in range(count)) + "\n"
