"""What a server answers by itself, without a handler."""

from __future__ import annotations

from typing import NamedTuple


class OwnPage(NamedTuple):
    """A page: status, headers, body."""

    status: int
    headers: dict[str, str]
    body: bytes
