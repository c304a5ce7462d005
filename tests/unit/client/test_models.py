"""Values as dataclasses and models of pydantic, written and read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Literal
from uuid import UUID

import httpx
import pydantic
import pytest
from tests.unit.client.api_double import ApiDouble, found, page, row, written

from keylane_client import AsyncClient, KeyAbsent, KeylaneError, ValueMismatch


class State(Enum):
    PAID = "paid"


@dataclass
class Line:
    sku: str
    price: float


@dataclass
class Order:
    id: UUID
    state: State
    lines: list[Line]
    at: datetime
    total: Decimal
    kind: Literal["web", "shop"] = "web"
    note: str | None = None
    labels: dict[str, int] = field(default_factory=dict)
    pair: tuple[int, str] = (0, "")
    tags: Annotated[frozenset[str], "x"] = frozenset()


class Shipment(pydantic.BaseModel):
    parcel: int = pydantic.Field(alias="parcelId")
    at: datetime


ORDER = Order(
    UUID(int=7),
    State.PAID,
    [Line("a", 1.5)],
    datetime(2026, 7, 4, tzinfo=UTC),
    Decimal("12.50"),
    note="ü",
    labels={"x": 1},
    pair=(3, "c"),
)
ORDER_AS_JSON = {
    "id": "00000000-0000-0000-0000-000000000007",
    "state": "paid",
    "lines": [{"sku": "a", "price": 1.5}],
    "at": "2026-07-04T00:00:00+00:00",
    "total": "12.50",
    "kind": "web",
    "note": "ü",
    "labels": {"x": 1},
    "pair": [3, "c"],
    "tags": [],
}
PLAIN = {"sku": "a", "price": 2}


def read(value, model):
    return ApiDouble(found(value)).client().topic("t", model=model)["k"].value


def test_a_dataclass_is_written_as_json_and_comes_back_as_it_was():
    api = ApiDouble(written(7))
    api.client().topic("t", Order).put("k", ORDER.__class__(**{**vars(ORDER), "tags": []}))
    assert api.requests[0].read().decode() == json.dumps(
        ORDER_AS_JSON, ensure_ascii=False, separators=(",", ":")
    )
    assert read(ORDER_AS_JSON, Order) == ORDER


def test_a_model_of_pydantic_is_written_with_its_aliases_and_comes_back_validated():
    api = ApiDouble(written(7))
    shipment = Shipment(parcelId=3, at="2026-07-04T00:00:00Z")
    api.topic().put("k", shipment)
    assert api.requests[0].read() == b'{"parcelId":3,"at":"2026-07-04T00:00:00Z"}'
    assert read({"parcelId": 3, "at": "2026-07-04T00:00:00Z"}, Shipment) == shipment


def test_what_a_dataclass_does_not_have_is_left_out_and_defaults_hold():
    assert read({**PLAIN, "new": 1}, Line) == Line("a", 2.0)
    assert read({**ORDER_AS_JSON, "note": None, "at": "2026-07-04T02:00:00Z"}, Order).at.hour == 2


@pytest.mark.parametrize(
    ("value", "model", "said"),
    [
        ({"sku": "a"}, Line, "Line.price is missing"),
        ({"sku": 1, "price": 1}, Line, "Line.sku is 1, not str"),
        ({"sku": "a", "price": True}, Line, "Line.price is True, not float"),
        ([], Line, r"Line is \[\], not Line"),
        ({**ORDER_AS_JSON, "lines": [PLAIN, {}]}, Order, r"Order.lines\[1\].sku is missing"),
        ({**ORDER_AS_JSON, "state": "lost"}, Order, "Order.state is 'lost', not State"),
        ({**ORDER_AS_JSON, "kind": "fax"}, Order, "Order.kind is 'fax', not one of 'web', 'shop'"),
        ({**ORDER_AS_JSON, "note": 5}, Order, "Order.note is 5, not str | NoneType"),
        ({**ORDER_AS_JSON, "labels": {"x": "1"}}, Order, r"Order.labels\['x'\] is '1', not int"),
        ({**ORDER_AS_JSON, "at": "soon"}, Order, "Order.at is 'soon', not datetime"),
        ({**ORDER_AS_JSON, "pair": [1]}, Order, r"Order.pair is \[1\], not array of 2"),
        ({"parcelId": "x", "at": "2026-07-04T00:00:00Z"}, Shipment, "not a Shipment: .*parcelId"),
    ],
)
def test_a_value_of_another_form_is_an_error_that_names_the_field(value, model, said):
    with pytest.raises(ValueMismatch, match=said.replace("|", r"\|")) as caught:
        read(value, model)
    assert isinstance(caught.value, KeylaneError)


def test_every_read_of_a_topic_has_values_of_its_model():
    lines = {"records": [{**row("a"), "value": PLAIN}], "watermarks": {"2": 8}}
    entry = {**row("a"), "value": PLAIN}
    history = {"records": [entry, {"partition": 2, "offset": 6, "timestamp": 1, "deleted": True}]}
    api = ApiDouble(found(PLAIN), *(httpx.Response(200, json=each) for each in (lines, lines, history)))
    topic = api.client().topic("t", model=Line)
    wanted = Line("a", 2.0)
    known = topic["a"]
    assert known.value == wanted
    assert topic.get_many(["a"])["a"].value == wanted
    assert next(topic.scan()).value == wanted
    assert [each.value for each in topic.history("a")] == [wanted, None]


def test_the_asynchronous_client_and_a_known_record_have_models_too():
    fresh = {"Keylane-Watermark": "2:9", "Keylane-Age-Ms": "1"}
    api = ApiDouble(found(PLAIN), httpx.Response(304, headers=fresh))

    async def read(client: AsyncClient):
        topic = client.session().topic("t", model=Line)
        record = await topic["k"]
        return record, await topic.get("k", known=record)

    record, again = api.run(read)
    assert record.value == again.value == Line("a", 2.0)


def test_a_page_and_an_absent_key_are_as_without_a_model():
    api = ApiDouble(page())
    assert list(api.client().topic("t", model=Line).scan()) == []
    assert issubclass(KeyAbsent, KeylaneError)
