"""Bodies of requests that the client compressed: `Content-Encoding` (RFC 9110, 8.4)."""

import zlib

from keylane.errors import BadRequest, TooLarge, UnsupportedEncoding

INFLATED_LIMIT_BYTES = 6 * 1024 * 1024
"""As much as an event of Lambda may carry uncompressed: a small body can't become a large one."""
MOST_MEMBERS = 10_000
"""Of a gzip file: each takes ten microseconds, however small it is, and 6 MiB have room for 300,000."""
_STEP_BYTES = 4096
"""What is given to a member at a time: what it leaves is copied, which for all of the rest took minutes."""
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
    given, at, left = memoryview(body), 0, INFLATED_LIMIT_BYTES + 1
    for _ in range(MOST_MEMBERS):
        inflater = zlib.decompressobj(_GZIP_FORMAT)
        while not inflater.eof:
            step = given[at : at + _STEP_BYTES]
            if not step:
                raise _not_gzip()
            try:
                parts.append(inflater.decompress(step, left))
            except zlib.error as error:
                raise _not_gzip() from error
            left -= len(parts[-1])
            if left <= 0:
                raise TooLarge("body", INFLATED_LIMIT_BYTES - left + 1, INFLATED_LIMIT_BYTES)
            at += len(step) - len(inflater.unused_data)
        if at == len(body):
            return b"".join(parts)
    raise BadRequest(f"the body has more than {MOST_MEMBERS:,} gzip members", "Content-Encoding")


def _not_gzip() -> BadRequest:
    return BadRequest("the body is not complete gzip, which Content-Encoding says it is", "Content-Encoding")
