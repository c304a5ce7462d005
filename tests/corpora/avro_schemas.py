"""The Avro schemas of DataHub: read and written as fastavro reads and writes."""

from __future__ import annotations

import contextlib
import io
import json
import random
from typing import Any

import fastavro
from fastavro.utils import generate_many
from tests.corpora.fetch import AVRO_SCHEMAS, folder_of
from tests.support.avro_values import same, with_times

from keylane.formats import avro_reader, avro_writer

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
