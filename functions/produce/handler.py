"""Records to Kafka, each with the position it got: of one key, or many as kprf and REST Proxy do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keylane import answers, api, produce, pushes, rest_answers, rest_proxy, routes, wiring
from keylane.errors import KeylaneError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_lambda_powertools.event_handler import Response

    from keylane.model import NewRecord
    from keylane.ports import Outcome

app = routes.Resolver()
parts = wiring.produce_maker()


@app.key(
    "PUT",
    parameters=(api.KEY_FORMAT,),
    body=routes.BYTES,
    answer="Written",
    status=201,
    refusals=(403, 413, 502),
)
def put_key(event: api.Event, topic: str, key: str) -> Response[str]:
    """Write the body as the key's value."""
    use = parts()
    topic_name, key_bytes = api.write_request(event, topic, key)
    position = produce.put(
        use.log,
        use.clock,
        topic_name,
        key_bytes,
        api.body_of(event),
        limit_bytes=use.settings.value_limit_bytes,
        timeout_ms=use.settings.timeout_ms,
    )
    return answers.of_position(position, 201)


@app.key("DELETE", parameters=(api.KEY_FORMAT,), answer="Written", refusals=(403, 502))
def delete_key(event: api.Event, topic: str, key: str) -> Response[str]:
    """Write a tombstone for the key."""
    use = parts()
    topic_name, key_bytes = api.write_request(event, topic, key)
    position = produce.delete(use.log, use.clock, topic_name, key_bytes, timeout_ms=use.settings.timeout_ms)
    return answers.of_position(position, 200)


@app.at(
    "/push",
    "POST",
    body=pushes.BODY,
    answer="Pushed",
    refusals=(403, 413, 502),
    tells_failures=True,
)
def push(event: api.Event) -> Response[str]:
    """Write records to any topics, as kprf takes them."""
    return pushes.answer_of(_write(pushes.request_of(event)), api.request_id_of(event))


@app.at(
    "/topics/{topic}",
    "POST",
    elsewhere=("GET", "HEAD"),
    parameters=(rest_proxy.KEY_FORMAT,),
    bodies=rest_proxy.BODIES,
    answer="Offsets",
    answer_type=rest_answers.JSON,
    refusals=(403, 413, 415, 422),
)
def post_records(event: api.Event, topic: str) -> Response[str]:
    """Write records to the topic, as Confluent's REST Proxy takes them."""
    return _post(event, topic)


@app.at(
    "/topics/{topic}/partitions/{partition}",
    "POST",
    elsewhere=("GET", "HEAD"),
    parameters=(rest_proxy.KEY_FORMAT,),
    bodies=rest_proxy.BODIES,
    answer="Offsets",
    answer_type=rest_answers.JSON,
    refusals=(403, 413, 415, 422),
)
def post_records_to_partition(event: api.Event, topic: str, partition: str) -> Response[str]:
    """Write records to one partition of the topic, as Confluent's REST Proxy takes them."""
    return _post(event, topic, partition)


def _post(event: api.Event, topic: str, partition: str | None = None) -> Response[str]:
    request_id = api.request_id_of(event)
    try:
        outcomes = _write(rest_proxy.request_of(event, topic, partition))
    except KeylaneError as error:
        return rest_answers.refusal_of(error, request_id)
    return rest_answers.answer_of(outcomes, request_id, in_path=partition is not None)


def _write(records: Sequence[NewRecord]) -> list[Outcome]:
    use = parts()
    return produce.put_all(
        use.log,
        use.clock,
        records,
        limit_bytes=use.settings.value_limit_bytes,
        timeout_ms=use.settings.timeout_ms,
    )


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one API Gateway REST proxy event."""
    return routes.serve(app, event, context)
