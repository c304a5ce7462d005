"""Records to Kafka, each with the position it got: of one key, or many as kprf and REST Proxy do."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from keylane.api import (
    guarded_write,
    kprf,
    preferences,
    rest_proxy,
    rest_proxy_answers,
    rest_proxy_avro,
    router,
    write_key,
)
from keylane.api.event import KEY_FORMAT, Event, body_of, request_id_of
from keylane.api.idempotency import IDEMPOTENCY_KEY
from keylane.errors import KeylaneError
from keylane.model.records import NewRecord
from keylane.produce import put
from keylane.wiring.metrics import function_meter
from keylane.wiring.produce import produce_maker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.api.response import Response
    from keylane.ports import Fate

meter = function_meter()
app = router.Resolver("produce", meter)
parts = produce_maker(meter)


@app.operation(
    parameters=(KEY_FORMAT, preferences.PREFER_ASYNC, IDEMPOTENCY_KEY),
    body=router.BYTES,
    answer="Written",
    status=201,
    accepted="Accepted",
    refusals=(403, 409, 413, 422, 429, 502),
)
def put_key(event: Event, topic: str, key: str) -> Response[str]:
    """Write the body as the key's value."""
    name, key_bytes = write_key.write_request(event, topic, key)
    is_async = preferences.wants_async(event)
    record = NewRecord(name, key_bytes, body_of(event))
    return _written(event, [record], partial(_of_one, 201, is_async=is_async), is_async=is_async)


@app.operation(
    parameters=(KEY_FORMAT, preferences.PREFER_ASYNC, IDEMPOTENCY_KEY),
    answer="Written",
    accepted="Accepted",
    refusals=(403, 409, 413, 422, 429, 502),
)
def delete_key(event: Event, topic: str, key: str) -> Response[str]:
    """Write a tombstone for the key."""
    name, key_bytes = write_key.write_request(event, topic, key)
    is_async = preferences.wants_async(event)
    record = NewRecord(name, key_bytes, None)
    return _written(event, [record], partial(_of_one, 200, is_async=is_async), is_async=is_async)


@app.operation(
    parameters=(IDEMPOTENCY_KEY,),
    body=kprf.BODY,
    answer="Pushed",
    refusals=(403, 409, 413, 422, 429, 502),
    reports_failures=True,
)
def push(event: Event) -> Response[str]:
    """Write records to any topics, as kprf takes them."""
    tell = partial(kprf.answer_of, request_id=request_id_of(event))
    records, waits = kprf.request_of(event)
    app.method = "push/sync" if waits else "push/async"  # as kprf's metrics call it
    return _written(event, records, tell, is_async=not waits)


@app.operation(
    parameters=(rest_proxy.KEY_FORMAT, preferences.PREFER_ASYNC, IDEMPOTENCY_KEY),
    bodies=rest_proxy.BODIES,
    answer="Offsets",
    accepted="Offsets",
    answer_type=rest_proxy_answers.JSON,
    refusals=(403, 409, 413, 415, 422, 429),
)
def post_records(event: Event, topic: str) -> Response[str]:
    """Write records to the topic, as Confluent's REST Proxy takes them."""
    return _post(event, topic)


@app.operation(
    parameters=(rest_proxy.KEY_FORMAT, preferences.PREFER_ASYNC, IDEMPOTENCY_KEY),
    bodies=rest_proxy.BODIES,
    answer="Offsets",
    accepted="Offsets",
    answer_type=rest_proxy_answers.JSON,
    refusals=(403, 409, 413, 415, 422, 429),
)
def post_records_to_partition(event: Event, topic: str, partition: str) -> Response[str]:
    """Write records to one partition of the topic, as Confluent's REST Proxy takes them."""
    return _post(event, topic, partition)


def _post(event: Event, topic: str, partition: str | None = None) -> Response[str]:
    request_id = request_id_of(event)
    is_async = preferences.wants_async(event)
    in_path = partition is not None
    tell = partial(rest_proxy_answers.answer_of, request_id=request_id, in_path=in_path, is_async=is_async)
    try:
        records, *schema_ids = rest_proxy.request_of(event, topic, partition, _encoders)
        tell = partial(tell, schema_ids=tuple(schema_ids))
        return _written(event, records, tell, is_async=is_async)
    except KeylaneError as error:
        return rest_proxy_answers.refusal_of(error, request_id)


def _encoders() -> rest_proxy_avro.Encoders | None:
    use = parts()
    return rest_proxy_avro.Encoders(use.schemas, use.clock, use.registry_timeout_ms) if use.schemas else None


def _written(
    event: Event, records: Sequence[NewRecord], tell: guarded_write.Tell, *, is_async: bool
) -> Response[str]:
    use = parts()
    write = partial(
        put.put_all,
        use.log,
        use.clock,
        limit_bytes=use.settings.value_limit_bytes,
        timeout_ms=use.settings.timeout_ms,
        way=put.Way(use.wal, is_async=is_async),
        checks=use.checks,
    )
    return guarded_write.written(use.guards, event, records, write, tell)


def _of_one(status: int, outcomes: Sequence[Fate], *, is_async: bool) -> Response[str]:
    [outcome] = outcomes
    if isinstance(outcome, KeylaneError):
        raise outcome
    return write_key.of_write(outcome, status, is_async=is_async)


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one API Gateway REST proxy event."""
    return router.serve(app, event, context)
