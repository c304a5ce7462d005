"""What producers compress record batches with, in the forms of Kafka's clients."""

import gzip
import zlib
from collections.abc import Callable

import pyarrow as pa

from keylane_spark.rows.varints import read_unsigned

MAX_BYTES = 256 * 1024 * 1024
"""A batch that would be larger than this is refused: Kafka limits only the compressed size."""

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16


class CompressionError(Exception):
    """The bytes can't be decompressed; the message says why."""


def decompress(codec: int, data: bytes) -> bytes:
    """The records of a batch. `codec`: Kafka's number, not 0. Raises CompressionError."""
    if codec not in _CODECS:
        raise CompressionError(f"compression {codec} is unknown")
    name, read = _CODECS[codec]
    try:
        return read(data)
    except (pa.ArrowException, OSError, zlib.error, EOFError, IndexError) as error:
        raise CompressionError(f"{name}: {error}") from error


def _read_gzip(data: bytes) -> bytes:
    with gzip.GzipFile(fileobj=pa.BufferReader(data)) as file:
        return _bounded(file.read(MAX_BYTES + 1))


def _read_stream(name: str) -> Callable[[bytes], bytes]:
    def read(data: bytes) -> bytes:
        with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
            return _bounded(stream.read(MAX_BYTES + 1))

    return read


def _read_snappy(data: bytes) -> bytes:
    """A raw block, as librdkafka writes, or blocks behind a header, as Java's library does."""
    if not data.startswith(_XERIAL):
        return _read_block(data)
    blocks, at, size = [], _XERIAL_HEADER_BYTES, 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        if length < 0 or at + length > len(data):
            raise CompressionError("snappy: a block ends behind the data")
        blocks.append(_read_block(data[at : at + length]))
        size += len(blocks[-1])
        if size > MAX_BYTES:
            raise CompressionError(_TOO_LARGE)
        at += length
    return b"".join(blocks)


def _read_block(data: bytes) -> bytes:
    size, _ = read_unsigned(data, 0)
    if size > MAX_BYTES:
        raise CompressionError(_TOO_LARGE)
    found: bytes = pa.decompress(data, decompressed_size=size, codec="snappy", asbytes=True)
    return found


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise CompressionError(_TOO_LARGE)
    return data


_TOO_LARGE = f"a batch has more than {MAX_BYTES:,} bytes"
_CODECS = {
    1: ("gzip", _read_gzip),
    2: ("snappy", _read_snappy),
    3: ("lz4", _read_stream("lz4")),
    4: ("zstd", _read_stream("zstd")),
}
