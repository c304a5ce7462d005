"""Functions with a Schema Registry, and without the state of another test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import an_event, load_handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def reading(redis_cluster: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ask]]:
    """Makes a warm query function for a registry's address: `ask(path, method=..., **event)`."""
    made = []
    monkeypatch.setenv("KEYLANE_REDIS_NODES", redis_cluster)

    def make(url: str, **settings: str) -> Ask:
        for name, value in ({"URL": url} | settings).items():
            monkeypatch.setenv(f"KEYLANE_SCHEMA_REGISTRY_{name}", value)
        handler = load_handler("query")
        made.append(handler)

        def ask(path: str, *, method: str = "GET", **event: Any) -> dict[str, Any]:
            answer: dict[str, Any] = handler.lambda_handler(an_event(method, path, **event), None)
            json.dumps(answer)  # as the runtime does
            return answer

        return ask

    yield make
    for handler in made:
        handler.application.parts().store.state.close()
