"""Bodies of requests that the client compressed: `Content-Encoding` (RFC 9110, 8.4)."""

import zlib

from keylane.errors import BadRequest, TooLarge, UnsupportedEncoding

INFLATED_LIMIT_BYTES = 6 * 1024 * 1024
"""As much as an event of Lambda may carry uncompressed: a small body can't become a large one."""
_GZIP = {"gzip", "x-gzip"}
_GZIP_FORMAT = 16 + zlib.MAX_WBITS


def inflate(body: bytes, coding: str) -> bytes:
    """Undo the codings of a `Content-Encoding`. Raises UnsupportedEncoding, BadRequest, TooLarge."""
    codings = [each for name in coding.split(",") if (each := name.strip().lower()) not in {"", "identity"}]
    if not codings:
        return body
    if len(codings) > 1 or codings[0] not in _GZIP:
        raise UnsupportedEncoding(coding)
    return _gunzip(body)


def _gunzip(body: bytes) -> bytes:
    """Inflate all members of a gzip file (RFC 1952)."""
    parts: list[bytes] = []
    left = INFLATED_LIMIT_BYTES + 1
    while body or not parts:
        inflater = zlib.decompressobj(_GZIP_FORMAT)
        try:
            parts.append(inflater.decompress(body, left))
        except zlib.error as error:
            raise _not_gzip() from error
        left -= len(parts[-1])
        if left <= 0:
            raise TooLarge("body", INFLATED_LIMIT_BYTES - left + 1, INFLATED_LIMIT_BYTES)
        if not inflater.eof:
            raise _not_gzip()
        body = inflater.unused_data
    return b"".join(parts)


def _not_gzip() -> BadRequest:
    return BadRequest("the body is not complete gzip, which Content-Encoding says it is", "Content-Encoding")
