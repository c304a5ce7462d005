"""All that a client can ask about the service and its views, as conversations and streams (`wire`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from keylane_client import pages
from keylane_client.answers import Joined, KafkaTopic, Window
from keylane_client.context import Context, Ledger
from keylane_client.models import require_model
from keylane_client.parsing import (
    expect_keylane,
    parse_age,
    parse_document,
    parse_key,
    parse_record,
    parse_watermarks,
    parse_window,
)
from keylane_client.topic_calls import TopicCalls
from keylane_client.wire import (
    ApiRequest,
    AskedKey,
    Conversation,
    Key,
    Moment,
    Stream,
    encode_time_bounds,
    key_bounds,
    key_segment,
    plain_key,
    segment,
)

_NOT_READY = 503


@dataclass(frozen=True, slots=True)
class ViewCalls:
    """A view. Its answers do not report positions: a session's writes cannot be waited for here."""

    name: str
    context: Context

    def windows(
        self,
        key: Key,
        *,
        start: Moment | None = None,
        stop: Moment | None = None,
        final: bool = False,
        page_size: int | None = None,
    ) -> Stream[Window]:
        """Read a key's windows that begin from `start` on and before `stop`, oldest first.

        With `final` those that may still change are left out.
        """
        name, query = key_segment(key)
        query |= encode_time_bounds(start, stop)
        return self._windows(f"keys/{name}", query, page_size, final=final)

    def scan(
        self,
        *,
        prefix: Key | None = None,
        start: Moment | None = None,
        stop: Moment | None = None,
        final: bool = False,
        page_size: int | None = None,
    ) -> Stream[Window]:
        """Read the windows of all keys, or of a prefix, by key and then by start."""
        query = key_bounds(prefix=prefix) | encode_time_bounds(start, stop)
        return self._windows("keys", query, page_size, final=final)

    def describe(self) -> Conversation[dict[str, Any]]:
        """Read the view's definition, and how far it is."""
        return parse_document((yield ApiRequest("GET", f"/views/{segment(self.name)}")), self.context.loads)

    def _windows(
        self, path: str, query: dict[str, str], page_size: int | None, *, final: bool
    ) -> Stream[Window]:
        query |= pages.limit_query(page_size) | ({"final": "true"} if final else {})
        full_path = f"/views/{segment(self.name)}/{path}"
        return pages.Pages(full_path, query, "windows", self.context.loads).stream(parse_window)


@dataclass(frozen=True, slots=True)
class ServiceCalls:
    """The service, as one client or one session sees it."""

    context: Context

    def topic(self, name: str, model: type | None = None) -> TopicCalls:
        """Return a topic; nothing is sent.

        `model`: a dataclass, or a model of pydantic. Records that are read have values of it, and a value of
        another form is ValueMismatch.
        """
        if model is not None:
            require_model(model)
        return TopicCalls(name, self.context, model=model)

    def view(self, name: str) -> ViewCalls:
        """Return a view; nothing is sent."""
        return ViewCalls(name, self.context)

    def session(self) -> ServiceCalls:
        """Begin a session: its reads always have its own writes."""
        return ServiceCalls(replace(self.context, ledger=Ledger()))

    def batching(self) -> ServiceCalls:
        """Let callers that ask at once ask together: gets in one read of many keys, writes in one push.

        Those of one tick of the event loop, or of threads in one millisecond, of one topic. Each gets its own
        result, or its own error. A get with conditions, or a write with an idempotency key, is sent alone.
        """
        return ServiceCalls(replace(self.context, is_batching=True))

    def topics(self, *, prefix: str = "", page_size: int | None = None) -> Stream[KafkaTopic]:
        """Read Kafka's topics by name, whether their state is kept or not."""
        query = pages.limit_query(page_size) | ({"prefix": prefix} if prefix else {})
        found = pages.Pages("/topics", query, "topics", self.context.loads, cursor="after")
        return found.stream(lambda row, _: KafkaTopic(row["topic"], row["partitions"]))

    def views(self) -> Conversation[list[dict[str, Any]]]:
        """Read all views, by name: each with its topic, window and columns."""
        document = parse_document((yield ApiRequest("GET", "/views")), self.context.loads)
        with expect_keylane():
            return [dict(each) for each in document["views"]]

    def join(self, key: AskedKey, topics: Sequence[str], *, atomic: bool = True) -> Conversation[Joined]:
        """Read one key of 2 to 10 topics at one moment.

        A session's own writes are not waited for here: the topics have positions of their own.
        """
        name, query = key_segment(plain_key(key))
        query |= {"topics": ",".join(topics)} | ({} if atomic else {"atomic": "false"})
        document = parse_document((yield ApiRequest("GET", f"/join/{name}", query)), self.context.loads)
        with expect_keylane():
            records = {topic: parse_record(each, topic) for topic, each in document["records"].items()}
            watermarks = {
                topic: parse_watermarks({"watermarks": each})
                for topic, each in document.get("watermarks", {}).items()
            }
            return Joined(parse_key(document), records, parse_age(document), watermarks)

    def health(self) -> Conversation[dict[str, Any]]:
        """Ask every part whether it is ready; the answer's `ready` says whether all are."""
        response = yield ApiRequest("GET", "/health", also_answers=frozenset({_NOT_READY}))
        return parse_document(response)
