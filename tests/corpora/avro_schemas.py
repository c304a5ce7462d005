"""The Avro schemas of DataHub: read and written as fastavro reads and writes."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import io
import json
import math
import random
import struct
from decimal import Decimal
from typing import Any

import fastavro
from fastavro.utils import generate_many
from tests.corpora.fetch import AVRO_SCHEMAS, folder_of

from keylane.formats import avro_reader, avro_writer


def same(ours: Any, theirs: Any) -> bool:
    """Whether Keylane's JSON has the value that fastavro read."""
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[name], theirs[name]) for name in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, float):
        return same_number(float(ours), theirs)
    return ours == as_json(theirs)


def same_number(ours: float, theirs: float) -> bool:
    if math.isnan(theirs):
        return math.isnan(ours)
    return ours == theirs or struct.pack("<f", ours) == struct.pack("<f", theirs)


def as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value if isinstance(value, bool | int | str | None) else str(value)


def with_times(ours: Any, theirs: Any) -> Any:
    """Texts of times as times, where fastavro has one."""
    if isinstance(theirs, dict):
        return {name: with_times(ours[name], each) for name, each in theirs.items()}
    if isinstance(theirs, list):
        return [with_times(one, other) for one, other in zip(ours, theirs, strict=True)]
    return dt.datetime.fromisoformat(ours) if isinstance(theirs, dt.datetime) else ours


VALUES, SEED = 20, 1


def compare() -> tuple[int, dict[str, str]]:
    """Return how many schemas there are, and what differs, by file."""
    root = folder_of(AVRO_SCHEMAS)
    files = sorted(root.glob("**/*.avsc"))
    differing = {}
    for file in files:
        if fault := _difference(file.read_text(encoding="utf-8")):
            differing[str(file.relative_to(root))] = fault[:200]
    return len(files), differing


def _difference(text: str) -> str | None:
    try:
        parsed = fastavro.parse_schema(json.loads(text))
        theirs_fault = ""
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        parsed, theirs_fault = None, repr(error)
    try:
        decode, encode = avro_reader.decoder(text), avro_writer.encoder(text)
    except ValueError as error:
        return None if theirs_fault else f"refused: {error}"
    if parsed is None:
        return f"taken, and refused by fastavro: {theirs_fault}"
    random.seed(SEED)
    for value in generate_many(parsed, VALUES):
        out, shown = io.BytesIO(), io.StringIO()
        fastavro.schemaless_writer(out, parsed, value)
        theirs: Any = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), parsed, None)
        ours = json.loads(decode(out.getvalue()))
        if not same(with_times(ours, theirs), theirs):
            return f"reads {json.dumps(ours)[:100]}"
        # The JSON writer of fastavro gives up on some unions: then there is nothing to compare.
        with contextlib.suppress(Exception):
            fastavro.json_writer(shown, parsed, [theirs])
        if shown.getvalue() and encode(json.loads(shown.getvalue())) != out.getvalue():
            return f"writes {shown.getvalue()[:100]} otherwise"
    return None
