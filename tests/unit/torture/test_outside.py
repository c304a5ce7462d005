"""The world of a job that the torture changes from outside."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pytest
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from tests.torture.outside import cut_rows_short

if TYPE_CHECKING:
    from pathlib import Path


class Ended(Exception):
    """The process would have ended."""


def end(_: int) -> NoReturn:
    raise Ended


@pytest.mark.parametrize("returned", [0, 1])
def test_a_worker_whose_rows_were_cut_ends_whatever_it_has_made_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returned: int
):
    """Else Spark would take nothing for what the rows come to."""
    monkeypatch.setattr(os, "_exit", end)
    for name in ("load_stream", "dump_stream"):
        monkeypatch.setattr(ArrowStreamSerializer, name, getattr(ArrowStreamSerializer, name))
    numbers = pa.RecordBatch.from_arrays([pa.array([{"id": 0}])], ["_0"])
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, numbers.schema) as written:
        written.write_batch(numbers)
    file = tmp_path / "cut"
    cut_rows_short(file)
    serializer = ArrowStreamSerializer()
    assert list(serializer.load_stream(io.BytesIO(stream.getvalue()))) == [numbers]
    serializer.dump_stream(iter([numbers] * returned), io.BytesIO())
    file.touch()
    assert not list(serializer.load_stream(io.BytesIO(stream.getvalue())))
    with pytest.raises(Ended):
        serializer.dump_stream(iter([numbers] * returned), io.BytesIO())
