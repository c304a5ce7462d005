"""Cursors: where a page ended, as opaque text. A cursor names no lane, so it outlives a change of layout.

Base64url without padding of:

    0         version    u8   1
    1         length of the topic's name   u8
    2..       topic
    8 bytes   digest of the request's bounds: the next page must have the same
    ...       position   depends on the kind of page; up to the checksum
    8 bytes   checksum of all before it

The checksum finds a cursor that was cut or changed on the way. A cursor gives no rights.
"""

import base64
import binascii
from hashlib import blake2b
from typing import NamedTuple

from keylane.errors import BadRequest

VERSION = 1
DIGEST_BYTES = 8
LONGEST_CHARACTERS = 90_000
"""A key of 64 KiB and the rest, in base64."""
_NOT_OURS = "is not valid: pass `next` of the previous page unchanged"


class Earlier(NamedTuple):
    """The `digest` of a request's bounds in an earlier version, and what its positions lack in front."""

    bounds: bytes
    prefix: bytes


def digest(*bounds: object) -> bytes:
    """Return the digest of a request's bounds."""
    return _hash(repr(bounds).encode())


def encode(topic: str, bounds: bytes, position: bytes) -> str:
    """Return the cursor of the page after `position`; `bounds` is the `digest` of the request's bounds."""
    name = topic.encode()
    data = bytes((VERSION, len(name))) + name + bounds + position
    return base64.urlsafe_b64encode(data + _hash(data)).rstrip(b"=").decode()


def render_next(topic: str, bounds: bytes, next_after: bytes | None) -> dict[str, str]:
    """Return the field `next` of a page; nothing for the last page."""
    return {} if next_after is None else {"next": encode(topic, bounds, next_after)}


def decode(text: str, topic: str, bounds: bytes, earlier: Earlier | None = None) -> bytes:
    """Return the position at which the last page ended. `bounds` is the `digest` of this request's bounds.

    `earlier`: what an earlier version wrote instead. Raises BadRequest if the cursor is invalid, or belongs
    to another topic or to other bounds.
    """
    data = _checked(text)
    end = 2 + data[1]
    if data[0] != VERSION:
        raise _refused(
            f"has version {data[0]}, but this service supports version {VERSION}: begin again without it"
        )
    if data[2:end] != topic.encode():
        raise _refused("belongs to another topic")
    given, position = data[end : end + DIGEST_BYTES], data[end + DIGEST_BYTES :]
    if earlier is not None and given == earlier.bounds:
        return earlier.prefix + position
    if given != bounds:
        raise _refused("belongs to other bounds: repeat the request of the first page, plus the cursor")
    return position


def _checked(text: str) -> bytes:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except (ValueError, binascii.Error) as error:
        raise _refused(_NOT_OURS) from error
    body, checksum = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    is_complete = len(body) >= 2 + DIGEST_BYTES and len(body) >= 2 + body[1] + DIGEST_BYTES
    # Spare bits that aren't 0 would be a second rendering of the same cursor.
    rendered = base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    if not is_complete or _hash(body) != checksum or rendered != text:
        raise _refused(_NOT_OURS)
    return body


def _refused(fault: str) -> BadRequest:
    return BadRequest(f"the cursor {fault}", "cursor")


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
