"""Everything that a client can say about one view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keylane_client.encoding import Key, Moment, encode_time_bounds, key_bounds, key_segment, segment
from keylane_client.pages import PageRequest, limit_query, send_once, stream_pages
from keylane_client.parsing import parse_document, parse_window
from keylane_client.wire import ApiRequest, Conversation, Stream

if TYPE_CHECKING:
    from keylane_client.answers import Window
    from keylane_client.context import Context


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
        query |= limit_query(page_size) | ({"final": "true"} if final else {})
        full_path = f"/views/{segment(self.name)}/{path}"
        return stream_pages(
            PageRequest(full_path, query, "windows", self.context.loads, send_once), parse_window
        )
