"""What `keylane new` and `keylane check` take for the topic of a database's table."""

from __future__ import annotations

import pytest

from keylane_local.commands.table_guess import (
    find_event_faults,
    find_key_faults,
    guess_key_fields,
    has_change_events,
)

EVENT = b'{"before":null,"after":{"id":1},"op":"c"}'


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([EVENT, b'{"before":{"id":1},"after":null,"op":"d"}'], True),
        ([b'{"schema":{},"payload":{"after":{},"op":"r"}}', b'{"id":1,"__deleted":"false"}'], True),
        ([EVENT, b'{"ts_ms": 1}'], False),
        ([EVENT, b"\xff"], False),
        ([], False),
    ],
)
def test_a_table_is_a_topic_of_which_all_values_are_events(values, expected):
    assert has_change_events(values) is expected


def test_faults_say_why_and_values_of_a_registry_are_left_out():
    assert list(find_event_faults([EVENT, b"\0\0\0\0\7x", b"\xff", b"{}"])) == [
        "it is not UTF-8",
        "it is not a change event: it has no op",
    ]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([b'{"id":1}', b'{"id":22}'], (("id", "integer"),)),
        ([b'{"region":"eu","id":1}'], (("region", "string"), ("id", "integer"))),
        ([b'{"ok":true}'], (("ok", "boolean"),)),
        ([b'{"id":1}', b'{"id":"1"}'], ()),
        ([b'{"id":1}', b'{"no":1}'], ()),
        ([b'{"id": 1}'], ()),
        ([b'{"id":1.5}'], ()),
        ([b'{"schema":{},"payload":{"id":1}}'], ()),
        ([b"{}"], ()),
        ([b"7"], ()),
        ([b"key"], ()),
        ([b"\xff"], ()),
        ([b'{"a":' * 100_000], ()),
        ([], ()),
    ],
)
def test_fields_are_those_of_all_keys_in_the_converter_s_form(keys, expected):
    assert guess_key_fields(keys) == expected


def test_keys_that_no_client_would_find_are_faults():
    keys = [b'{"id":1}', b'{"id": 1}', b'{"id":"a"}']
    assert list(find_key_faults((("id", "integer"),), keys)) == [
        "their JSON is not that of Connect's converter",
        "the key has a field 'id' that is not an integer: keys of this topic are {\"id\": ...}",
    ]
