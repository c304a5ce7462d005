"""GET and HEAD of a key: its latest record, straight from the one shard that holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keylane import answers, api, read, routes, wiring

if TYPE_CHECKING:
    from aws_lambda_powertools.event_handler import Response

app = routes.Resolver()
parts = wiring.query_maker()


@app.key("GET", "HEAD")
def get_key(event: api.Event, topic: str, key: str) -> Response[Any]:
    """Answer with the record's own bytes, or say that there is none."""
    query = parts()
    request = api.read_request(event, topic, key, query.settings)
    answer = read.latest(
        query.state,
        query.layouts,
        query.clock,
        request.topic,
        request.key,
        min_position=request.min_position,
        wait_ms=request.wait_ms,
        partial=request.partial,
        timeout_ms=query.settings.state_timeout_ms,
    )
    return answers.of_record(
        answer,
        api.request_id_of(event),
        query.clock.now_ms(),
        if_none_match=request.if_none_match,
        envelope=request.envelope,
    )


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one API Gateway REST proxy event."""
    return routes.serve(app, event, context)
