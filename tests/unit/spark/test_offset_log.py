"""The end offsets of a batch, from the text that Spark writes."""

from __future__ import annotations

import pytest

from keylane.errors import Unavailable, WriterError
from keylane_spark.stream.batch_query import batch_ends


def test_ends_of_all_topics_are_read(tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text('v1\n{"batchTimestampMs":1}\n{"a":{"0":5,"10":7},"b-c":{"0":0}}')
    assert batch_ends(tmp_path, 4) == {("a", 0): 5, ("a", 10): 7, ("b-c", 0): 0}


@pytest.mark.parametrize("text", ["", "v1\n{}", "v1\n{}\nnot json", "v1\n{}\n[1]", "v1\n{}\n-\n-"])
def test_another_format_is_an_error_that_names_the_batch(tmp_path, text):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text(text)
    with pytest.raises(WriterError, match="batch 4"):
        batch_ends(tmp_path, 4)


def test_a_log_that_is_gone_passes_with_the_next_query(tmp_path):
    with pytest.raises(Unavailable, match="batch 9"):
        batch_ends(tmp_path, 9)
