"""Everything that a client can say about the service as a whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from keylane_client.answers import Joined, KafkaTopic
from keylane_client.encoding import Key, key_segment
from keylane_client.ledger import Ledger
from keylane_client.pages import PageRequest, limit_query, send_once, stream_pages
from keylane_client.parsing import (
    expect_keylane,
    parse_age,
    parse_document,
    parse_key,
    parse_record,
    parse_watermarks,
)
from keylane_client.topic_calls import TopicCalls
from keylane_client.view_calls import ViewCalls
from keylane_client.wire import ApiRequest, Conversation, Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane_client.context import Context

_NOT_READY = 503


@dataclass(frozen=True, slots=True)
class ServiceCalls:
    """The service, as one client or one session sees it."""

    context: Context

    def topic(self, name: str) -> TopicCalls:
        """Return a topic; nothing is sent."""
        return TopicCalls(name, self.context)

    def view(self, name: str) -> ViewCalls:
        """Return a view; nothing is sent."""
        return ViewCalls(name, self.context)

    def in_session(self) -> ServiceCalls:
        """Return the service as a new session sees it."""
        return ServiceCalls(replace(self.context, ledger=Ledger()))

    def topics(self, *, prefix: str = "", page_size: int | None = None) -> Stream[KafkaTopic]:
        """Read Kafka's topics by name, whether their state is kept or not."""
        query = limit_query(page_size) | ({"prefix": prefix} if prefix else {})
        request = PageRequest("/topics", query, "topics", self.context.loads, send_once, "after")
        return stream_pages(request, lambda row, _: KafkaTopic(row["topic"], row["partitions"]))

    def views(self) -> Conversation[list[dict[str, Any]]]:
        """Read all views, by name: each with its topic, window and columns."""
        document = parse_document((yield ApiRequest("GET", "/views")), self.context.loads)
        with expect_keylane():
            return [dict(each) for each in document["views"]]

    def join(self, key: Key, topics: Sequence[str], *, atomic: bool = True) -> Conversation[Joined]:
        """Read one key of 2 to 10 topics at one moment.

        A session's own writes are not waited for here: the topics have positions of their own.
        """
        name, query = key_segment(key)
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
