"""The documented requests of REST Proxy (tests/compat), to the functions over fakes: no server is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.compat.cases import check_answer, fill, load_cases, names_of
from tests.compat.targets import SCHEMA_TOPICS
from tests.support.builders import an_event, body_of, headers_of, load_handler, load_produce, load_query
from tests.support.fakes import FakeKafka, FakeLog, FakeSchemaWriter, FakeState, FakeTime

from keylane.adapters.kafka.admin import ReaderSettings
from keylane.config.functions import ExploreSettings
from keylane.model.clusters import DEFAULT, Clusters
from keylane.model.routes import function_for
from keylane.query.layouts import Layouts
from keylane.query.store import Store
from keylane.wiring.explore import ExploreParts

if TYPE_CHECKING:
    from collections.abc import Callable

CASES = load_cases("rest_proxy")
KNOWN = {"topic": "flights", **SCHEMA_TOPICS, "cluster": "fake"}
TOPICS = {"flights": 9, "registered": 3, "something": 2, "anything": 2}


@pytest.fixture
def schemas() -> FakeSchemaWriter:
    return FakeSchemaWriter()


@pytest.fixture
def send(schemas: FakeSchemaWriter) -> Callable[..., dict[str, Any]]:
    log, kafka, state, clock = FakeLog(), FakeKafka(), FakeState({}), FakeTime().clock
    for topic, count in TOPICS.items():
        log.create(topic, count)
        kafka.create(topic, count)
    explore = load_handler("explore")
    store = Store(state, Layouts(state, clock, 0), clock)
    settings = ExploreSettings(Clusters(ReaderSettings("kafka:9092")))
    explore.parts = lambda: ExploreParts(settings, clock, kafka, kafka, {DEFAULT: kafka}, store)
    produce = load_produce(log, schemas=schemas)

    def ask(method: str, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        name = function_for(method, path)
        if name == "produce":
            return produce(path, body, method, headers=headers)
        if name == "query":
            return load_query()(method, path, headers=headers)
        answer: dict[str, Any] = explore.lambda_handler(an_event(method, path, headers=headers), None)
        return answer

    return ask


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_the_documented_one(
    name: str, send: Callable[..., dict[str, Any]], schemas: FakeSchemaWriter
):
    case = CASES[name]
    names = names_of(case, KNOWN, schemas.add)
    answer = send(case.method, fill(case.path, names), case.request_body(names), dict(case.headers))
    check_answer(case, names, answer["statusCode"], headers_of(answer)["Content-Type"], body_of(answer))


def test_every_case_says_where_its_answer_is_documented():
    assert len(CASES) > 80
    assert all(case.source and (case.answer is not None or case.reports) for case in CASES.values())
