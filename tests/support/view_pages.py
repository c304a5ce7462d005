"""All windows of a view, as readers page through them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.query.span import Span
from keylane.query.views import Window, WindowScan, read_windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane.query.store import ReadTerms, Store

WHOLE = Span()


def all_windows(
    store: Store, view: str, terms: ReadTerms, span: Span = WHOLE, limit: int = 1000
) -> Iterator[Window]:
    """The windows of the keys in a span, `limit` in a page. Raises KeylaneError."""
    after = None
    while True:
        page = read_windows(store, WindowScan(view, span, limit=limit, after=after), terms)
        yield from page.rows
        after = page.next_after
        if after is None:
            return
