"""Content codings of long bodies (RFC 9110, 8.4.1): pieces are compressed as they come."""

import zlib

from keylane.state.compression import zstandard

FAST = 1
"""The level of both: by zlib JSON gets a fifth larger than by its default one, in a third of the time."""
_GZIP_FORMAT = 16 + zlib.MAX_WBITS


class PlainCoder:
    """Returns pieces as they are."""

    def encode(self, piece: bytes) -> bytes:
        """Return what can be sent of all that came until now, or nothing if that is too little."""
        return piece

    def flush(self) -> bytes:
        """Return what is left of it: the client need not wait for more to read it."""
        return b""

    def end(self) -> bytes:
        """Return what is left, and the body's end."""
        return b""


class GzipCoder(PlainCoder):
    """Compresses as gzip does (RFC 1952)."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(FAST, zlib.DEFLATED, _GZIP_FORMAT)

    def encode(self, piece: bytes) -> bytes:
        """See `PlainCoder`."""
        return self._compressor.compress(piece)

    def flush(self) -> bytes:
        """See `PlainCoder`."""
        return self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        """See `PlainCoder`."""
        return self._compressor.flush()


class ZstdCoder(PlainCoder):
    """Compresses by Zstandard (RFC 8878)."""

    def __init__(self) -> None:
        module = zstandard()
        self._block = module.COMPRESSOBJ_FLUSH_BLOCK
        self._compressor = module.ZstdCompressor(level=FAST).compressobj()

    def encode(self, piece: bytes) -> bytes:
        """See `PlainCoder`."""
        data: bytes = self._compressor.compress(piece)
        return data

    def flush(self) -> bytes:
        """See `PlainCoder`."""
        data: bytes = self._compressor.flush(self._block)
        return data

    def end(self) -> bytes:
        """See `PlainCoder`."""
        data: bytes = self._compressor.flush()
        return data


CODERS: dict[str | None, type[PlainCoder]] = {None: PlainCoder, "gzip": GzipCoder, "zstd": ZstdCoder}
"""By content coding."""
