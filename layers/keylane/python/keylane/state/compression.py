"""Compressed values: Zstandard frames, most of them made with a dictionary of their topic's generation.

A frame is one of RFC 8878 without the magic number: the envelope's flag says what it is, and each byte counts
in values of a hundred. It names its dictionary by the id in the dictionary (0: it has none), and the size of
its value. Both are checked before anything is decompressed.

A dictionary is Zstandard's: magic number, id (u32, little-endian), tables, content. Its id is a hash of all
that follows it, so an id never stands for two dictionaries. Zstandard's own id is one of the content alone:
two dictionaries that differ in their tables have the same one, and frames of one are damaged for the other.

`zstandard` is imported at the first compressed value: that takes 3 ms, which no other topic pays.
"""

from __future__ import annotations

import hashlib
import threading
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from keylane.state.codec import CodecError

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

MOST_DICTIONARY_BYTES = 128 * 1024
MOST_DICTIONARIES = 8
"""Of a generation: as many are kept as it has, and no more are made."""


_ID_AT, _ID_ENDS = 4, 8
_LOWEST_ID, _IDS = 32_768, (1 << 31) - 32_768
"""Others are reserved for dictionaries that are registered."""


def hash_id(dictionary: bytes) -> int:
    """Return the id that a dictionary must have."""
    digest = hashlib.blake2b(dictionary[_ID_ENDS:], digest_size=8).digest()
    return _LOWEST_ID + int.from_bytes(digest) % _IDS


def with_hash_id(dictionary: bytes) -> bytes:
    """Return a dictionary of Zstandard's with the id that it must have."""
    return dictionary[:_ID_AT] + hash_id(dictionary).to_bytes(4, "little") + dictionary[_ID_ENDS:]


@cache
def zstandard() -> ModuleType:
    """Return the module. Raises CodecError where it is not installed."""
    try:
        import zstandard as module  # noqa: PLC0415 (see above)
    except ImportError as error:
        raise CodecError(f"the value is compressed, and the package zstandard is missing: {error}") from error
    return module


class FrameHead(NamedTuple):
    """What a frame says of itself: the id of its dictionary, 0 for none, and the size of its value."""

    dictionary_id: int
    size_bytes: int


def read_head(frame: bytes) -> FrameHead:
    """Read the beginning of a frame. Raises CodecError for other bytes, and for a frame without its size."""
    module = zstandard()
    try:
        found = module.get_frame_parameters(frame, format=module.FORMAT_ZSTD1_MAGICLESS)
    except module.ZstdError as error:
        raise CodecError(f"{len(frame)} bytes are not a compressed value: {error}") from error
    if found.content_size >= module.CONTENTSIZE_ERROR:
        raise CodecError(f"a compressed value of {len(frame)} bytes does not say its size")
    return FrameHead(found.dict_id, found.content_size)


class Dictionary:
    """A dictionary that frames name, ready to decompress; of b"" the frames that name none. Thread-safe."""

    def __init__(self, data: bytes) -> None:
        """Raises CodecError for bytes that are not a dictionary."""
        if len(data) > MOST_DICTIONARY_BYTES:
            raise CodecError(f"a dictionary has {len(data)} bytes, at most {MOST_DICTIONARY_BYTES} are read")
        module = zstandard()
        self.data = data
        self.id = 0
        given = None
        if data:
            try:
                given = module.ZstdCompressionDict(data, dict_type=module.DICT_TYPE_FULLDICT)
                self._decompressor = _decompressor(given)
            except module.ZstdError as error:
                raise CodecError(f"{len(data)} bytes are not a dictionary: {error}") from error
            self.id = int(given.dict_id())
            if self.id != hash_id(data):
                raise CodecError(f"{len(data)} bytes are not a dictionary: their id is {self.id}")
        else:
            self._decompressor = _decompressor(None)
        self._lock = threading.Lock()
        self._error = module.ZstdError

    def expand(self, frame: bytes, size_bytes: int) -> bytes:
        """Return the value of a frame whose head names this dictionary and this size. Raises CodecError."""
        try:
            with self._lock:
                value: bytes = self._decompressor.decompress(frame, allow_extra_data=False)
        except self._error as error:
            raise CodecError(f"a compressed value of {len(frame)} bytes is damaged: {error}") from error
        if len(value) != size_bytes:
            raise CodecError(f"a compressed value has {len(value)} bytes and names {size_bytes}")
        return value


def _decompressor(dictionary: Any) -> Any:
    module = zstandard()
    return module.ZstdDecompressor(dict_data=dictionary, format=module.FORMAT_ZSTD1_MAGICLESS)


@cache
def no_dictionary() -> Dictionary:
    """Return what decompresses frames that name no dictionary."""
    return Dictionary(b"")
