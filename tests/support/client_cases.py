"""The Python client's runner of tests/e2e/client_cases.json; client_cases.ts is the TypeScript client's.

A case's steps are calls on topics and views. Their arguments are JSON, with objects for what JSON does not
have (`_special`); `{key}` in a text is the case's own key. A result is JSON again: `plain`.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import itertools
import math
import time
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from keylane_client import (
    Absent,
    AsyncClient,
    FoundPage,
    HistoryEntry,
    KeylaneError,
    NewRecord,
    Position,
    ProblemError,
    Record,
    Window,
    WriteFailed,
    Written,
    all_of,
    between,
    starting_with,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

Json = Any
_VIEWS_S = 120
FAKE_TOPICS = {"flights": 9, "bookings": 3, "joined": 9, "limited": 1, "typed": 3}
FAKE_FIELDS = {
    "bookings": {
        "to": "text",
        "fare": "number",
        "leaves": "time",
        "paid": "boolean",
        "stops": "texts",
        "rider.country": "text",
    }
}
"""A fake with the topics of the stack."""
_ITERATORS = {"scan", "keys", "find", "history", "watch", "windows"}


def run_cases(opened: AbstractContextManager[Any], prefix: str, cases: list[Json]) -> list[Json]:
    """Return what each step of each case answered by this client, and what it saved."""
    with opened as client:
        return [_Run(client, f"{prefix}-{index}", case).results() for index, case in enumerate(cases)]


class BlockedAsync:
    """An asynchronous client, its session, topic or view, used as the blocking one is."""

    def __init__(self, runner: asyncio.Runner, target: object) -> None:
        self._runner = runner
        self._target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return self._call(found) if callable(found) else found

    def __getitem__(self, key: Any) -> Any:
        return self._settle(self._target[key])  # type: ignore[index]

    def __iter__(self) -> Iterator[Any]:
        return self._items(aiter(self._target))  # type: ignore[call-overload]

    def _call(self, method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: self._settle(method(*args, **kwargs))

    def _settle(self, result: Any) -> Any:
        if inspect.isasyncgen(result):
            return self._items(result)
        if inspect.isawaitable(result):
            return self._runner.run(self._awaited(result))
        return BlockedAsync(self._runner, result) if type(result).__name__.startswith("Async") else result

    def _items(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        try:
            while True:
                yield self._runner.run(self._awaited(anext(items)))
        except StopAsyncIteration:
            return
        finally:
            if inspect.isasyncgen(items):
                self._runner.run(items.aclose())

    @staticmethod
    async def _awaited(awaitable: Awaitable[Any]) -> Any:
        return await awaitable


@contextmanager
def asynchronous(client: AsyncClient) -> Iterator[BlockedAsync]:
    with asyncio.Runner() as runner:
        yield BlockedAsync(runner, client)
        runner.run(client.aclose())


class _Run:
    def __init__(self, client: Any, key: str, case: Json) -> None:
        self._api = client if case.get("of") == "client" else client.session()
        self._key = key
        self._case = case
        self._saved: dict[str, Any] = {}

    def results(self) -> Json:
        found = [self._result(step) for step in self._case["steps"]]
        return {
            "key": self._key,
            "results": found,
            "saved": {name: plain(it) for name, it in self._saved.items()},
        }

    def _result(self, step: Json) -> Json:
        try:
            return plain(self._answer(step))
        except KeylaneError as error:
            return _plain_error(error)

    def _answer(self, step: Json) -> Any:
        end_s = time.monotonic() + _VIEWS_S
        while True:
            found = self._call(step)
            if len(found) >= step["until"] if "until" in step else True:
                break
            assert time.monotonic() < end_s, f"{step} gives {found}"
            time.sleep(0.1)
        if "save" in step:
            self._saved[step["save"]] = found
        return found

    def _call(self, step: Json) -> Any:
        args = [self._given(each) for each in step.get("args", ())]
        options = {name: self._given(each) for name, each in step.get("options", {}).items()}
        call = step["call"]
        if call == "read":
            return self._target(step)[args[0]]
        if call == "push":
            args = [[NewRecord(**each) for each in args[0]]]
        found = getattr(self._target(step), call)(*args, **options)
        for name, *given in step.get("chain", ()):
            found = getattr(found, name)(*map(self._given, given))
        if "end" in step:
            return getattr(found, step["end"])()
        return self._items(found, step) if call in _ITERATORS else found

    def _items(self, found: Any, step: Json) -> list[Any]:
        items = []
        following = iter(step.get("then", ()))
        for item in itertools.islice(found, step.get("take")):
            items.append(item)
            for after in itertools.islice(following, 1):
                self._answer(after)
        return items

    def _target(self, step: Json) -> Any:
        if "view" in step:
            return self._api.view(step["view"])
        topic = self._api.topic(step["topic"])
        if "at" in step:
            return topic.at(self._given(step["at"]))
        terms = dict(step.get("terms", {}))
        if "max_age_ms" in terms:
            terms["max_age"] = timedelta(milliseconds=terms.pop("max_age_ms"))
        return topic.reading(**terms)

    def _given(self, given: Json) -> Any:
        if isinstance(given, str):
            return given.replace("{key}", self._key)
        if isinstance(given, list):
            return list(map(self._given, given))
        if not isinstance(given, dict):
            return given
        for name, make in self._special().items():
            if name in given:
                rest = {other: self._given(each) for other, each in given.items() if other != name}
                return make(self._given(given[name]), **rest)
        return {name: self._given(each) for name, each in given.items()}

    def _special(self) -> Mapping[str, Callable[..., Any]]:
        return {
            "$": self._reference,
            "later": self._later,
            "bytes": base64.b64decode,
            "key_bytes": base64.b64decode,
            "fields_of_key": dict,
            "position": Position.parse,
            "moment": datetime.fromisoformat,
            "nan": lambda _: math.nan,
            "between": lambda bounds, **end: between(*bounds, **end),
            "starting_with": starting_with,
            "all_of": lambda wanted: all_of(*wanted),
        }

    def _reference(self, path: str) -> Any:
        name, *members = path.split(".")
        found = self._saved[name]
        for member in members:
            found = getattr(found, member)
        return found

    def _later(self, path: str) -> Position:
        position = self._reference(path)
        return Position(position.partition, position.offset + 1_000_000)


@singledispatch
def plain(found: Any) -> Json:
    """Return what a client returned as JSON, as client_cases.ts does."""
    return found


@plain.register
def _(found: bytes) -> Json:
    return {"bytes": base64.b64encode(found).decode()}


@plain.register
def _(found: list) -> Json:
    return list(map(plain, found))


@plain.register
def _(found: dict) -> Json:
    # Of many keys: each with its record.
    return [[plain(key), plain(each)] for key, each in found.items()]


@plain.register
def _(found: Record) -> Json:
    return {
        "kind": "record",
        "key": plain(found.key),
        "value": _plain_value(found.value),
        "value_format": found.value_format,
        "position": str(found.position),
        "fresh": found.watermark is not None and found.age is not None,
        "etag": "@" in found.etag,
        "headers": found.headers and [[each.name, plain(each.value)] for each in found.headers],
    }


@plain.register
def _(found: Absent) -> Json:
    return {"kind": "absent", "key": plain(found.key)}


@plain.register
def _(found: Written) -> Json:
    position = found.position and str(found.position)
    is_queued = found.queued_id is not None
    return {"kind": "written", "position": position, "queued": is_queued, "replayed": found.is_replayed}


@plain.register
def _(found: WriteFailed) -> Json:
    return {
        "kind": "failed",
        "code": found.code,
        "retriable": found.is_retriable,
        "uncertain": found.is_uncertain,
        "superseded": found.is_superseded,
    }


@plain.register
def _(found: HistoryEntry) -> Json:
    return {
        "kind": "entry",
        "position": str(found.position),
        "value": _plain_value(found.value),
        "value_format": found.value_format,
        "deleted": found.is_deleted,
        "fresh": found.watermark is not None and found.age is not None,
    }


@plain.register
def _(found: FoundPage) -> Json:
    is_fresh = bool(found.watermarks) and found.age is not None
    return {"records": plain(list(found.records)), "has_next": found.next is not None, "fresh": is_fresh}


@plain.register
def _(found: Window) -> Json:
    return {
        "kind": "window",
        "key": plain(found.key),
        "has_bounds": found.start_ms is not None and found.end_ms is not None,
        "final": found.is_final,
        "values": dict(found.values),
    }


def _plain_value(value: Any) -> Json:
    return plain(value) if isinstance(value, bytes) else value


def _plain_error(error: KeylaneError) -> Json:
    kinds = [each.__name__ for each in type(error).__mro__ if issubclass(each, KeylaneError)]
    if not isinstance(error, ProblemError):
        return {"error": kinds}
    return {"error": kinds, "status": error.status, "type": error.type, "parameter": error.parameter}
