"""A topic's options as arguments of the library: Python and Lua have the same names for them."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from keylane.model.records import Options
from keylane_spark.lanes import function_library
from keylane_spark.lanes.lane import LONGEST_MS
from keylane_spark.lanes.option_arguments import OptionArguments, lua_names, option_arguments

FIELDS = OptionArguments._fields
LUA = {
    each.name: each.read_text(encoding="utf-8")
    for each in files("keylane_spark.lanes").joinpath("library").iterdir()
}


def test_the_library_begins_with_the_places_of_the_arguments_by_their_names():
    names, places = re.fullmatch(r"local ([A-Z_, ]+) = ([0-9, ]+)\n", lua_names().decode()).groups()  # type: ignore[union-attr]
    assert names.lower().split(", ") == list(FIELDS)
    assert list(map(int, places.split(", "))) == list(range(len(FIELDS)))
    assert function_library.CODE.count(lua_names()) == 1
    assert function_library.CODE.index(lua_names()) < function_library.CODE.index(b"local function")


def test_lua_uses_the_names_that_there_are_and_no_number_for_an_option():
    used = {name for text in LUA.values() for name in re.findall(r"args\[\w+ \+ ([A-Z_]+)\]", text)}
    assert used <= {each.upper() for each in FIELDS}
    assert {each.lower() for each in used} == set(FIELDS)
    assert [name for name, text in LUA.items() if re.search(r"args\[at( \+ \d+)?\]", text)] == []


@pytest.mark.parametrize(
    ("options", "given"),
    [
        (Options(), (Options().marker_ms, 0, 7, 0, 0, 0, 0, 0)),
        (
            Options(
                ttl_ms=1,
                history_count=2,
                history_age_ms=3,
                insert_once=True,
                index=4,
                marker_ms=5,
                guarded=True,
            ),
            (5, 1, 7, 1, 2, 3, 1, 4),
        ),
        (Options(ttl_ms=10**17), (Options().marker_ms, 1, 7, LONGEST_MS, 0, 0, 0, 0)),
    ],
)
def test_options_are_numbers_in_the_order_of_the_names(options: Options, given: tuple[int, ...]):
    assert option_arguments(options, 7) == tuple(b"%d" % each for each in given)
