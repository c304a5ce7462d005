"""PUT and DELETE of a key: one record or tombstone to Kafka, and the position it got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keylane import answers, api, produce, routes, wiring

if TYPE_CHECKING:
    from aws_lambda_powertools.event_handler import Response

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


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one API Gateway REST proxy event."""
    return routes.serve(app, event, context)
