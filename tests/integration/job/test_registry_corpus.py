"""Values of a real Schema Registry by all that reads them: one verdict each, as of the other values.

`where` and `select` of topics do not read them, nor do functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from tests.integration.job.test_value_corpus import by_view, check_page, of_kafka, rows_of, verdict_lines
from tests.records.registry_values import SCHEMAS, framed_values, register
from tests.servers.registry_double import client_of
from tests.support.builders import a_layout

from keylane.adapters.registry.decoders import RegistryDecoders
from keylane.adapters.registry.login import RegistrySettings
from keylane.errors import ValueNotDecodable
from keylane.formats.json_text import parse_verbatim
from keylane.model.records import Options, Record
from keylane.ports import Clock, WaitBudget
from keylane.query.decoding import ValueDecoder
from keylane.state.field_index import indexes_of
from keylane.state.windows import Column, Definition
from keylane_spark.rows.change_events import apply_events
from keylane_spark.rows.fields import field_entries
from keylane_spark.schemas.framed_values import FramedReaders
from keylane_spark.views.table_rows import row_changes
from keylane_spark.views.values import SparkRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from tests.records.values import Value
    from tests.servers.schema_registry import Registry

SIZES = (1, 16, 17, 1_000)
COUNT = (Column("n", "count"), Column("l", "latest", "v"))
UNREADABLE, ROW, DELETED, NO_EVENT = "unreadable", "row", "deleted", "no event"


class FramedCorpus(NamedTuple):
    """The values, and what reads have of each: its JSON, None where it can't be decoded.

    `rows`: that of the row, which change events have; `events`: what each is.
    """

    settings: RegistrySettings
    values: list[Value]
    reads: list[str | None]
    rows: list[str | None]
    events: list[str]

    def batches(self, size: int) -> Iterator[tuple[int, list[bytes]]]:
        for first in range(0, len(self.values), size):
            yield first, [value.data for value in self.values[first : first + size]]


@pytest.fixture(scope="module")
def framed(registry: Registry) -> FramedCorpus:
    values = framed_values(register(registry.client))
    decoders = RegistryDecoders(client_of(registry.url))
    reads = [read(decoders, value.data, "none")[0] for value in values]
    rows, why = zip(*(read(decoders, value.data, "debezium") for value in values), strict=True)
    deletes = "the event deletes the row"
    events = [
        ROW if row is not None else DELETED if reason == deletes else NO_EVENT
        for row, reason in zip(rows, why, strict=True)
    ]
    return FramedCorpus(RegistrySettings(registry.url), values, reads, list(rows), events)


def read(decoders: RegistryDecoders, value: bytes, envelope: Any) -> tuple[str | None, str]:
    """What a read shows, and why it can't."""
    layout = a_layout(options=Options(value_format="registry", envelope=envelope))
    decoder = ValueDecoder(lambda: decoders, WaitBudget(60_000, Clock()))
    try:
        return decoder.decode(layout, Record(b"k", value, 0, 0, 0)).value.decode(), ""
    except ValueNotDecodable as error:
        return None, error.reason


@pytest.mark.parametrize("envelope", ["none", "debezium"])
@pytest.mark.parametrize("kind", ["text", "number"])
@pytest.mark.parametrize("size", SIZES)
def test_fields_are_those_of_the_json_that_reads_show(
    framed: FramedCorpus, envelope: Any, kind: str, size: int
):
    options = Options(index=1, fields=(("v", kind),), value_format="registry", envelope=envelope)
    decode = FramedReaders.of(framed.settings).decode
    shown = framed.reads if envelope == "none" else framed.rows
    for first, batch in framed.batches(size):
        entries, invalid = field_entries(pa.array(batch, pa.binary()), options, decode)
        count = 0
        for at, found in enumerate(entries.to_pylist(), first):
            text, value = shown[at], framed.values[at]
            if text is None:
                is_deleted = envelope != "none" and framed.events[at] == DELETED
                wanted, refused = b"", int(bool(value.data) and not is_deleted)
            else:
                wanted, refused = indexes_of(options).entries(parse_verbatim(text))
            assert found == wanted, value.name
            count += refused
        assert invalid == count, first


@pytest.mark.parametrize("size", SIZES)
def test_events_have_the_verdicts_of_reads(framed: FramedCorpus, size: int):
    judge = FramedReaders.of(framed.settings).judge
    found = []
    for _, batch in framed.batches(size):
        applied = apply_events(rows_of(batch), judge)
        kept = applied.rows.values.is_valid().to_pylist()
        found += [
            NO_EVENT if invalid else ROW if is_kept else DELETED
            for invalid, is_kept in zip(applied.is_invalid.tolist(), kept, strict=True)
        ]
    differing = [
        (value.name, one, other)
        for value, one, other in zip(framed.values, found, framed.events, strict=True)
        if one != other
    ]
    assert not differing


def test_views_count_what_reads_show_and_the_page_shows_the_verdicts(
    spark: SparkSession, framed: FramedCorpus
):
    data = [value.data for value in framed.values]
    frame = of_kafka(spark, data)

    def counted(**terms: Any) -> list[str]:
        view = Definition("t", COUNT, value_format="registry", **terms)
        return by_view(frame, view, len(data), framed.settings)

    by_key, by_time = counted(key="v"), counted(time="v", size_ms=86_400_000)
    by_where = counted(where="json is not null")
    for at, text in enumerate(framed.reads):
        if text is None:
            found = {by_key[at], by_time[at], by_where[at]}
            assert found == {"invalid"}, framed.values[at].name
        else:
            assert by_where[at] in {"counted", "failed"}, framed.values[at].name
    view = Definition("t", COUNT[:1], envelope="debezium", value_format="registry")
    changes = row_changes(SparkRows(frame), view, framed.settings).select("partition", "kind").toArrow()
    kinds = dict(zip(*(changes.column(name).to_pylist() for name in ("partition", "kind")), strict=True))
    assert [(ROW, DELETED, NO_EVENT)[kinds[at]] for at in range(len(data))] == framed.events
    shown = [UNREADABLE if text is None else "json" for text in framed.reads]
    verdicts = list(zip(shown, by_where, by_key, by_time, framed.events, strict=True))
    check_page(1, page_of(framed, verdicts))


def page_of(framed: FramedCorpus, verdicts: list[tuple[str, ...]]) -> list[str]:
    return [
        "Values of a Schema Registry",
        "",
        (
            f"`tests/records/registry_values.py` makes {len(framed.values)} values of {len(SCHEMAS)} "
            "schemas of a real registry, and `tests/integration/job/test_registry_corpus.py` sends each "
            "through reads, fields, views and rows of tables. `event`: what it is as a change event."
        ),
        "",
        "| a read shows | a view with `where` | a view by its key | a view by its time | event | values |",
        "| --- | --- | --- | --- | --- | --- |",
        *verdict_lines(framed.values, verdicts),
    ]
