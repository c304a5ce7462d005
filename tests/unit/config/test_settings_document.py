"""The tables have all variables that are read, and docs/configuration/settings.md is made from them."""

from __future__ import annotations

import re
from dataclasses import fields
from itertools import chain

from keylane.adapters.kafka.options import ClientOptions, ProducerOptions, Security
from keylane.adapters.redis.cluster import RedisSettings
from keylane.config import kafka_table
from keylane.config.kafka_table import CLIENT, PREFIX, PRODUCER, SECURITY
from keylane.config.settings import SettingsTable
from keylane.config.table import REDIS, SETTINGS
from keylane_build import settings as settings_page
from keylane_local.tools import project_root

ROOT = project_root()
CODE = ("functions", "layers", "spark", "cli", "local", "server", "tools", "clients")
TABLES = {"table.py", "kafka_table.py"}
VARIABLE = re.compile(r"KEYLANE_[A-Z0-9_]*[A-Z0-9]\b(?!_)")
READ_BY_FIELD = (
    (CLIENT, ClientOptions, (PREFIX,)),
    (PRODUCER, ProducerOptions, (PREFIX,)),
    (SECURITY, Security, (PREFIX, "SECURITY_", "SASL_", "SSL_")),
    (REDIS, RedisSettings, ("KEYLANE_REDIS_",)),
)


def all_settings() -> set[str]:
    return set(SETTINGS).union(
        *(each for each in vars(kafka_table).values() if isinstance(each, SettingsTable))
    )


def test_the_page_is_what_the_tables_make():
    assert (ROOT / "docs/configuration/settings.md").read_text() == settings_page.page(), (
        "run `make generate`"
    )


def test_every_setting_stands_on_the_page_once_in_cells_that_can_be_read():
    rows = re.findall(r"^\| `(KEYLANE_[A-Z0-9_]+)` \|(.*)\|$", settings_page.page(), re.MULTILINE)
    described = [name for name, cells in rows if cells.count(" | ") in {2, 3}]
    assert sorted(described) == sorted(all_settings())
    assert max(len(cell) for _, cells in rows for cell in cells.split(" | ")) <= 200


def test_fields_that_are_filled_from_a_table_are_all_in_it():
    for table, values, prefixes in READ_BY_FIELD:
        environment = {"KEYLANE_REDIS_NODES": "one:1"}
        assert table.fields(environment, *prefixes).keys() <= {field.name for field in fields(values)}


def test_the_code_reads_all_settings_and_no_other_variable():
    files = chain.from_iterable((ROOT / folder).rglob("*.py") for folder in CODE)
    read = {name for file in files if file.name not in TABLES for name in VARIABLE.findall(file.read_text())}
    by_field = {name for table, *_ in READ_BY_FIELD for name in table}
    assert (read | by_field) - {"KEYLANE_KAFKA"} == all_settings()
