"""Each function gets the template's value of every setting that it reads, by the tables of the settings."""

from __future__ import annotations

import re
from itertools import chain

import pytest
from tests.support.cloudformation import template

from keylane.config import kafka_table
from keylane.config.settings import SettingsTable
from keylane.config.table import REDIS, SETTINGS
from keylane.model.routes import EXPLORE, PRODUCE, QUERY

MAIN = template()
TABLES = [SETTINGS, REDIS, *(each for each in vars(kafka_table).values() if isinstance(each, SettingsTable))]
READ_BY = {name: setting.parts for table in TABLES for name, setting in table.items()}
NAMES = (QUERY, PRODUCE, EXPLORE, "drain", "authorizer")
GLOBAL = MAIN["Globals"]["Function"]["Environment"]["Variables"]
GIVEN = {
    name: GLOBAL | MAIN["Resources"][f"{name.capitalize()}Function"]["Properties"]["Environment"]["Variables"]
    for name in NAMES
}
OWN = {
    "KEYLANE_REDIS_USERNAME": "each function has a user of its own in a new cache",
    "KEYLANE_REDIS_PASSWORD": "and that user's password",
    "KEYLANE_ACCESS": "functions get it with COGNITO alone, where there is no authorizer",
}
FROM_THE_RUNTIME = {"KEYLANE_METRICS_NAMESPACE"}


def is_read_by(variable: str, function: str) -> bool:
    """Whether the tables say so."""
    parts = READ_BY[variable]
    return "all functions" in parts or function in re.split(r", *", parts)


@pytest.mark.parametrize("function", NAMES)
def test_a_function_gets_every_setting_of_the_template_that_it_reads_and_no_other(function):
    known = set(chain.from_iterable(GIVEN.values()))
    assert GIVEN[function].keys() == {name for name in known if is_read_by(name, function)}


@pytest.mark.parametrize("variable", sorted(set(chain.from_iterable(GIVEN.values())) - OWN.keys()))
def test_all_functions_get_the_same_value_of_a_setting(variable):
    first, *others = [each[variable] for each in GIVEN.values() if variable in each]
    assert all(each == first for each in others)
    assert first != "", "an empty variable says nothing"
