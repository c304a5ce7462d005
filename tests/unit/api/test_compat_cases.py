"""The documented requests of REST Proxy (tests/compat), to the functions over fakes: no server is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.compat.cases import PRODUCTS, check_answer, fill, load_cases, names_of
from tests.compat.targets import SCHEMA_TOPICS
from tests.support.builders import (
    an_application,
    an_event,
    body_of,
    explore_settings,
    headers_of,
    load_produce,
    load_query,
    no_schemas,
)
from tests.support.fakes import FakeKafka, FakeLog, FakeSchemaWriter, FakeState, FakeTime

from keylane.api.http.gateway import answer
from keylane.app import explore
from keylane.model.clusters import DEFAULT
from keylane.model.routes import find
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
    store = Store(state, Layouts(state, clock, 0), clock)
    parts = ExploreParts(explore_settings(), clock, kafka, kafka, {DEFAULT: kafka}, no_schemas, store)
    application = an_application(explore.OPERATIONS, parts)
    produce = load_produce(log, schemas=schemas)

    def ask(method: str, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        name = find(method, path).function
        if name == "produce":
            return produce(path, body, method, headers=headers)
        if name == "query":
            return load_query()(method, path, headers=headers)
        return answer(application, an_event(method, path, headers=headers), None)

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


def test_every_case_is_of_one_product_and_each_product_has_cases():
    by_product = {product: load_cases(product).keys() for product in PRODUCTS}
    every = load_cases("")
    assert sorted(name for names in by_product.values() for name in names) == sorted(every)
    with pytest.raises(FileNotFoundError):
        load_cases("elsewhere")
