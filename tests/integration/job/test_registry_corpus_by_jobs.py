"""Values of a real Schema Registry through real jobs: what is read of each is what its verdict says.

`test_registry_corpus.py` has the verdicts, by the functions of readers and job.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from tests.integration.job.test_corpus_by_jobs import VALUE_FIELD, How
from tests.integration.job.test_registry_corpus import DELETED, ROW, FramedCorpus, framed
from tests.servers.own import create_topic, eventually, produce
from tests.support import jobs
from tests.support.views import Query

from keylane.formats.json_text import parse_verbatim

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["framed"]
PLAIN, EVENTS, COUNTED = "framed", "framed-events", "framed-counted"
CONFIG = """
[topics.{plain}]
value_format = "registry"
fields = {{ v = "text" }}
[topics.{events}]
value_format = "registry"
envelope = "debezium"
[views.{counted}]
topic = "{plain}"
where = "json is not null"
[views.{counted}.columns]
n = "count()"
"""
UNREADABLE = 422


class FramedReads:
    """What a query function reads of the values, in topics whose names end with `run`."""

    def __init__(self, query: Query, run: str) -> None:
        self._query = query
        self._run = run

    def check_rows(self, topic: str, shown: Sequence[str | None], absent: set[int]) -> None:
        """Each key has what is shown, is absent, or can't be decoded."""
        eventually(lambda: self._answer(topic, 0)[0] != 503)  # the state is built
        for number, text in enumerate(shown):
            status, body = self._answer(topic, number)
            wanted = 404 if number in absent else UNREADABLE if text is None else 200
            assert status == wanted, (topic, number, body[:200])
            assert status != 200 or body == text, (topic, number)

    def _answer(self, topic: str, number: int) -> tuple[int, str]:
        found = self._query.answer(f"/topics/{topic}{self._run}/keys/k{number}")
        return found["statusCode"], found["body"]

    def check_finds(self, shown: Sequence[str | None]) -> None:
        """A find has the keys whose values have this text."""
        wanted = defaultdict[str, set[str]](set)
        for number, text in enumerate(shown):
            document = None if text is None else parse_verbatim(text)
            if VALUE_FIELD.entries(document)[0] and len(document["v"]) <= 64:
                wanted[document["v"]].add(f"k{number}")
        assert len(wanted) > 5
        for text, keys in wanted.items():
            path = f"/topics/{PLAIN}{self._run}/find"
            status, found = self._query.ask(path, v=json.dumps(text), limit="1000")
            assert status == 200, (text, found)
            assert {each["key"] for each in found["records"]} == keys, text

    def check_view(self, shown: Sequence[str | None]) -> None:
        """It counts what can be decoded, or fails on it, and the rest is invalid."""
        unreadable = sum(text is None for text in shown)

        def is_counted() -> bool:
            counted, invalid, failed = self._query.counted(COUNTED + self._run)
            return (counted + failed, invalid) == (len(shown) - unreadable, unreadable)

        eventually(is_counted)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "how",
    [
        How("direct", 1_000, in_driver=True),
        How("direct", 17, in_driver=False),
        How("spark", 16, in_driver=True),
        How("spark", 1_000, in_driver=False),
    ],
    ids=lambda how: f"{how.reader}-{how.size}",
)
def test_what_is_read_of_a_job_s_state_is_what_the_verdicts_say(
    framed: FramedCorpus,
    how: How,
    kafka: str,
    redis_cluster: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    run = f"-{how.reader}-{how.size}"
    monkeypatch.setenv("KEYLANE_SCHEMA_REGISTRY_URL", framed.settings.url)
    for topic in (PLAIN, EVENTS):
        create_topic(kafka, topic + run, 1)
        records = ((b"k%d" % number, value.data) for number, value in enumerate(framed.values))
        produce(kafka, topic + run, records, message_max_bytes=1_040_000)
    config = how.config + CONFIG.format(plain=PLAIN + run, events=EVENTS + run, counted=COUNTED + run)
    with jobs.running(kafka, redis_cluster, tmp_path, config) as job:
        job.wait_for("keylane: ready")
        reads = FramedReads(Query(redis_cluster, monkeypatch), run)
        reads.check_rows(PLAIN, framed.reads, set())
        reads.check_rows(
            EVENTS, framed.rows, {at for at, kind in enumerate(framed.events) if kind == DELETED}
        )
        reads.check_finds(framed.reads)
        reads.check_view(framed.reads)
        assert ROW in framed.events
        assert not [line for line in job.lines if "restarts in" in line or "FAILED" in line]
