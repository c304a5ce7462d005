"""The part of `keylane status` that an API knows: topics and views, and how far each is."""

from __future__ import annotations

import time
import tomllib
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane_client import Client, ClientOptions, KeylaneError, RetryPolicy, UnknownTopic, UnknownView

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import httpx

_OLD_MS = 10_000
"""Lanes are marked twice a second: of older ones the present lag is not known."""
_COUNTED = {
    "late": "late",
    "invalid": "invalid (no key, no time, or not decodable)",
    "failed": "failed (its expressions)",
}
"""Records that are in no window of a view: the member of its description, and why."""
_OPTIONS = ClientOptions(timeout_s=10.0, retries=RetryPolicy(attempts=1))


class StatusLine(NamedTuple):
    """A topic or a view. `state`: in a word or a sentence; `details`: what else is going on."""

    name: str
    state: str
    details: str = ""


def named_in(config: Path | None) -> tuple[list[str], list[str]]:
    """Return the topics and the views of a keylane.toml; none if it is not there, or not valid TOML."""
    try:
        tables = tomllib.loads(config.read_text(encoding="utf-8-sig")) if config else {}
    except (OSError, ValueError):
        return [], []
    return list(tables.get("topics", {})), list(tables.get("views", {}))


def read_progress(
    url: str, auth: httpx.Auth | None, config: Path | None, down: Sequence[str] = ()
) -> Iterator[StatusLine]:
    """Yield what the API says of the topics of a keylane.toml, and of all views. Never raises.

    `down`: parts that are known not to run. They explain why a topic or a view is old.
    """
    topics, views = named_in(config)
    try:
        with Client(url, auth, options=_OPTIONS) as client:
            found = _ProgressReader(client, down)
            yield from (_describe(f"topic {name}", lambda name=name: found.topic(name)) for name in topics)
            names = dict.fromkeys([*views, *(each["view"] for each in client.views())])
            yield from (_describe(f"view {name}", lambda name=name: found.view(name)) for name in names)
    except (KeylaneError, ValueError) as error:
        yield StatusLine("api", f"{url}: {error}")


def _describe(title: str, read: Any) -> StatusLine:
    try:
        state, details = read()
    except (UnknownTopic, UnknownView) as error:
        return StatusLine(title, "not there", str(error))
    return StatusLine(title, state, details)


class _ProgressReader:
    """How far topics and views are. Of an old one only its age is known, and why it is old."""

    def __init__(self, client: Client, down: Sequence[str]) -> None:
        self._client = client
        self._down = down

    def topic(self, name: str) -> tuple[str, str]:
        document = self._client.topic(name).layout().document
        lanes = document["lanes"]
        if document.get("building"):
            end = sum(lane["log_end"] for lane in lanes)
            behind = sum(lane["lag"] for lane in lanes)
            state = f"building, {100 * (end - behind) // end} %" if end else "building"
        else:
            state = "incomplete" if document.get("incomplete") else "complete"
        return self._aged(document, state, f"lag {document['lag']}")

    def view(self, name: str) -> tuple[str, str]:
        document = self._client.view(name).describe()
        if stopped := document.get("stopped"):
            return "stopped", stopped
        state = "building" if document.get("building") else "complete"
        state = "incomplete" if document.get("incomplete") else state
        counted = [f"{document[word]} {why}" for word, why in _COUNTED.items() if document.get(word)]
        return self._aged(document, state, *counted)

    def _aged(self, document: Mapping[str, Any], state: str, *details: str) -> tuple[str, str]:
        age_ms = document.get("age_ms")
        if age_ms is not None and age_ms > _OLD_MS:
            since = datetime.fromtimestamp(time.time() - age_ms / 1000).astimezone()
            return "old", f"nothing is known since {since:%Y-%m-%d %H:%M:%S}: {self._cause}"
        age = "" if age_ms is None else f"age {age_ms / 1000:.1f} s"
        return state, ", ".join(filter(None, (*details, age, _next(document))))

    @cached_property
    def _cause(self) -> str:
        """What is down, as far as it is known."""
        if self._down:
            return f"{', '.join(self._down)} {'does' if len(self._down) == 1 else 'do'} not run"
        try:
            parts = self._client.health().get("parts", {})
        except KeylaneError as error:
            return str(error)
        away = [f"{name}: {part.get('why')}" for name, part in parts.items() if not part.get("ready")]
        return "; ".join(away) or "the job does not run, or does not keep up"


def _next(document: Mapping[str, Any]) -> str:
    if not (found := document.get("next")):
        return ""
    percent = "" if found["percent"] is None else f", {found['percent']} %"
    return f"generation {found['generation']} is being built{percent}"
