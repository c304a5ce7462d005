"""The events of `events/`: one for each operation, of the requests that tests/e2e/test_examples.py sends."""

from __future__ import annotations

from tests.e2e import examples


def test_the_stored_events_are_up_to_date():
    stored = {
        str(each.relative_to(examples.EVENTS)): each.read_text(encoding="utf-8")
        for each in examples.EVENTS.glob("*/*.json")
    }
    assert stored == examples.events(), "make generate"


def test_every_operation_has_an_example_with_its_path_and_method():
    operations = {name: (method, path) for name, method, path in examples.operations()}
    assert operations.keys() == examples.EXAMPLES.keys(), "tests/e2e/examples.py has one for each operation"
    for name, example in examples.EXAMPLES.items():
        assert examples.is_of(example, *operations[name]), name
