"""Cursors: where a page ended, as opaque text. It names no lane, so it outlives writes and changes of layout.

Base64url without padding of:

    0         version    u8   1
    1         length of the topic's name   u8
    2..       topic
    8 bytes   digest of what was asked for: the next page must be of the same
    ...       place      what the kind of page makes of it, to the checksum
    8 bytes   checksum of all before it

The checksum finds what was cut or changed on the way. A cursor is a place and gives no rights.
"""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b

from keylane.errors import BadRequest

VERSION = 1
DIGEST_BYTES = 8
LONGEST_CHARACTERS = 90_000
"""A key of 64 KiB and the rest, in base64."""


def digest(*asked: object) -> bytes:
    """What a cursor holds of what was asked for."""
    return _hash(repr(asked).encode())


def encode(topic: str, asked: bytes, place: bytes) -> str:
    """Make the cursor that goes on after `place`; `asked` as `digest` gives it."""
    name = topic.encode()
    data = bytes((VERSION, len(name))) + name + asked + place
    return base64.urlsafe_b64encode(data + _hash(data)).rstrip(b"=").decode()


def decode(text: str, topic: str, asked: bytes) -> bytes:
    """Give the place. Raises BadRequest for what is no cursor, or one of another topic or other bounds."""
    data = _checked(text)
    end = 2 + data[1]
    if data[0] != VERSION:
        raise _refused(f"has version {data[0]}, {VERSION} is known: begin anew without it")
    if data[2:end] != topic.encode():
        raise _refused("is of another topic")
    if data[end : end + DIGEST_BYTES] != asked:
        raise _refused("is of other bounds: the next page is asked for as the first, plus the cursor")
    return data[end + DIGEST_BYTES :]


def _checked(text: str) -> bytes:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except (ValueError, binascii.Error) as error:
        raise _refused("is none of ours: give it as the last page did") from error
    body, checksum = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    is_whole = len(body) >= 2 + DIGEST_BYTES and len(body) >= 2 + body[1] + DIGEST_BYTES
    # Spare bits that aren't 0 would be a second spelling of the same cursor.
    spelled = base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    if not is_whole or _hash(body) != checksum or spelled != text:
        raise _refused("is none of ours: give it as the last page did")
    return body


def _refused(fault: str) -> BadRequest:
    return BadRequest(f"the cursor {fault}", "cursor")


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
