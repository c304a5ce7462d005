"""The functions of docs/use/transforms.md do what the page says; their SQL runs in tests/integration/job."""

from __future__ import annotations

import pytest
from tests.support.transform_examples import DELETED, Example, examples
from tests.unit.spark.test_record_transforms import NONE, some_rows, values_of

from keylane_spark.config.transforms import Transform
from keylane_spark.rows.record_function import read_code
from keylane_spark.rows.transforms import TopicTransform, transform_rows

FUNCTIONS = [each for each in examples() if each.function]


@pytest.mark.parametrize("example", FUNCTIONS, ids=lambda example: example.function)
def test_each_function_of_the_page_returns_what_it_shows(example: Example, tmp_path, monkeypatch):
    module = f"page_{example.function}"
    (tmp_path / f"{module}.py").write_text(example.code)
    monkeypatch.syspath_prepend(str(tmp_path))
    code = read_code(f"{module}:{example.function}")
    rows = some_rows(*(before for before, _ in example.pairs))
    found = transform_rows(rows, NONE, 0, TopicTransform(Transform(function=code.name), "stop", code))
    after = [None if after == DELETED else after.encode() for _, after in example.pairs]
    assert list(values_of(found).values()) == after


def test_the_page_has_an_example_of_each_kind():
    assert {each.function for each in FUNCTIONS} == {"decode", "enrich", "masked"}
    assert {each.topic for each in examples() if each.topic} == {"customers", "orders", "users", "payments"}
