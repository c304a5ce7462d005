"""How often a real query of Spark looks for new records, changed while it runs."""

from __future__ import annotations

import pytest
from tests.servers.own import eventually
from tests.support.fakes import FakeTime

from keylane_spark.engine import polling
from keylane_spark.engine.polling import IDLE_AFTER_S, PollingDelay

BUSY_MS, IDLE_MS = 10, 40


@pytest.fixture
def stream(spark, tmp_path):
    """A query that counts the lines of new files in a folder; the folder, the query, the lines so far."""
    folder, lines = tmp_path / "files", []
    folder.mkdir()
    rows = spark.readStream.text(folder.as_uri()).writeStream
    rows = rows.option("checkpointLocation", (tmp_path / "checkpoint").as_uri())
    query = rows.foreachBatch(lambda batch, _: lines.extend(row.value for row in batch.collect())).start()
    yield folder, query, lines
    query.stop()


def delay_of(query) -> int:
    return query._jsq.streamingQuery().pollingDelayMs()


def test_an_idle_query_looks_less_often_until_a_batch_comes(stream):
    folder, query, lines = stream
    time = FakeTime()
    delay = PollingDelay(query, IDLE_MS, time.clock, pytest.fail)
    delay.relax()
    assert delay_of(query) == BUSY_MS, "it has not been idle for long"
    time.pause(IDLE_AFTER_S)
    delay.relax()
    assert delay_of(query) == IDLE_MS
    (folder / "one").write_text("a line\n")
    eventually(lambda: lines == ["a line"])
    delay.note_batch()
    assert delay_of(query) == BUSY_MS
    time.pause(IDLE_AFTER_S - 1)
    delay.relax()
    assert delay_of(query) == BUSY_MS, "there was a batch within the minute"


def test_spark_s_own_delay_stays_where_it_is_longer(stream):
    _, query, _ = stream
    time = FakeTime()
    delay = PollingDelay(query, 5, time.clock, pytest.fail)
    time.pause(IDLE_AFTER_S)
    delay.relax()
    assert delay_of(query) == BUSY_MS


def test_a_spark_without_that_field_keeps_its_delay_and_the_log_says_so(stream, monkeypatch):
    _, query, _ = stream
    monkeypatch.setattr(polling, "_CLASS", "java.lang.Thread")
    time = FakeTime()
    said: list[str] = []
    delay = PollingDelay(query, IDLE_MS, time.clock, said.append)
    time.pause(IDLE_AFTER_S)
    delay.relax()
    delay.note_batch()
    assert said == [
        "Spark's polling delay can't be set: java.lang.Thread has none. An idle job takes more of its core"
    ]
    assert delay_of(query) == BUSY_MS
