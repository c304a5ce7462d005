"""Values that resemble each other, as those of a topic do, and what compresses them in tests."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from keylane.state.compression import Dictionary, no_dictionary, read_head
from keylane_spark.rows.compression import ColumnCompressor, Samples, train
from keylane_spark.rows.records import Records

if TYPE_CHECKING:
    from collections.abc import Sequence

CITIES = ("Berlin", "Paris", "Rome", "Warsaw")


def order(number: int) -> bytes:
    """An order of 140 bytes or so, the same one for a number."""
    source = random.Random(number)
    return json.dumps(
        {
            "order": f"o-{number:08}",
            "status": source.choice(("new", "paid", "shipped")),
            "customer": f"c-{source.randrange(10**6)}",
            "total": source.randrange(100_000) / 100,
            "city": source.choice(CITIES),
            "items": source.randrange(1, 9),
        }
    ).encode()


def reading(number: int) -> bytes:
    """A reading of a device: another kind of value."""
    source = random.Random(number)
    fields = ",".join(f"<r at='{number + each}' temp='{source.randrange(400) / 10}'/>" for each in range(4))
    return f"<readings device='{source.randrange(10**5)}' unit='celsius'>{fields}</readings>".encode()


def dictionary_of(values: Sequence[bytes]) -> bytes:
    """A dictionary for values like these."""
    samples = Samples()
    samples.add(pa.array(values, pa.binary()))
    trained = train(samples)
    assert trained is not None
    return trained


def records_of(values: Sequence[bytes | None]) -> Records:
    """Records with these values, and with keys and offsets that are their numbers."""
    numbers = np.arange(len(values))
    return Records(
        pa.array([b"%d" % number for number in numbers], pa.binary()),
        pa.array(values, pa.binary()),
        numbers,
        numbers + 1_700_000_000_000,
    )


def frame_of(value: bytes, dictionary: bytes = b"") -> bytes:
    """The frame of a value that gets shorter."""
    records, _ = ColumnCompressor(dictionary).compress(records_of([value]))
    assert records.compressed is not None
    return records.values[0].as_py()


def value_of(frame: bytes, dictionary: bytes = b"") -> bytes:
    """What a frame was made of."""
    head = read_head(frame)
    opened = Dictionary(dictionary) if dictionary else no_dictionary()
    assert head.dictionary_id == opened.id
    return opened.expand(frame, head.size_bytes)
