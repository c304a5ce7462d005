"""The part of `keylane status` that an API knows: topics and views, and how far each is."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane_client import Client, ClientOptions, KeylaneError, RetryPolicy, UnknownTopic, UnknownView

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

_OPTIONS = ClientOptions(timeout_s=10.0, retries=RetryPolicy(attempts=1))


class StatusLine(NamedTuple):
    """A topic or a view. `state`: in a word or a sentence; `details`: what else is going on."""

    name: str
    state: str
    details: str = ""


def named_in(config: Path | None) -> tuple[list[str], list[str]]:
    """Return the topics and the views of a keylane.toml; none if it is not there, or not valid TOML."""
    try:
        tables = tomllib.loads(config.read_text(encoding="utf-8")) if config else {}
    except (OSError, ValueError):
        return [], []
    return list(tables.get("topics", {})), list(tables.get("views", {}))


def read_progress(url: str, auth: httpx.Auth | None, config: Path | None) -> Iterator[StatusLine]:
    """Yield what the API says of the topics of a keylane.toml, and of all views. Never raises."""
    topics, views = named_in(config)
    try:
        with Client(url, auth, options=_OPTIONS) as client:
            yield from (_describe(f"topic {name}", lambda name=name: _topic(client, name)) for name in topics)
            listed = [each["view"] for each in client.views()]
            names = dict.fromkeys([*views, *listed])
            yield from (_describe(f"view {name}", lambda name=name: _view(client, name)) for name in names)
    except (KeylaneError, ValueError) as error:
        yield StatusLine("api", f"{url}: {error}")


def _describe(title: str, read: Any) -> StatusLine:
    try:
        state, details = read()
    except (UnknownTopic, UnknownView) as error:
        return StatusLine(title, "not there", str(error))
    return StatusLine(title, state, details)


def _topic(client: Client, name: str) -> tuple[str, str]:
    document = client.topic(name).layout().document
    lanes = document["lanes"]
    if document.get("building"):
        end = sum(lane["log_end"] for lane in lanes)
        state = f"building, {100 * (end - document['lag']) // end} %" if end else "building"
    else:
        state = "incomplete" if document.get("incomplete") else "complete"
    return state, ", ".join(filter(None, (f"lag {document['lag']}", _age(document), _next(document))))


def _view(client: Client, name: str) -> tuple[str, str]:
    document = client.view(name).describe()
    if stopped := document.get("stopped"):
        return "stopped", stopped
    state = "building" if document.get("building") else "complete"
    state = "incomplete" if document.get("incomplete") else state
    counted = [f"{document[word]} {word}" for word in ("late", "invalid", "failed") if document.get(word)]
    return state, ", ".join(filter(None, (_age(document), *counted, _next(document))))


def _age(document: Any) -> str:
    return f"age {document['age_ms'] / 1000:.1f} s" if "age_ms" in document else ""


def _next(document: Any) -> str:
    if not (found := document.get("next")):
        return ""
    percent = "" if found["percent"] is None else f", {found['percent']} %"
    return f"generation {found['generation']} is being built{percent}"
