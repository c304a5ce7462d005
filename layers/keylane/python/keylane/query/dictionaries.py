"""Values of topics with `compression`: what makes them of the frames in Redis, and where dictionaries are.

A dictionary is read at the first value that names it, and kept for the life of the process: it never changes.
Of its three copies any will do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane import routing
from keylane.errors import CorruptState, StateUnavailable, TooLarge
from keylane.model.keys import printable
from keylane.ports import Call
from keylane.state import redis_keys
from keylane.state.codec import CodecError
from keylane.state.compression import Dictionary, no_dictionary, read_head

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.model.records import Layout
    from keylane.ports import Deadline, State

MOST_KEPT = 512
MOST_EXPANDED_BYTES = 32 * 1024 * 1024
"""The values of one step of a read: as many bytes as its replies from Redis may have."""


class UnknownDictionary(CodecError):
    """A value's dictionary has not been read yet."""


class Dictionaries:
    """The dictionaries that a process has read: the MOST_KEPT that were read last."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int, int], Dictionary] = {}

    def known(self, layout: Layout, dictionary_id: int) -> Dictionary | None:
        """Return a dictionary of the layout's generation, None if it has to be read."""
        return self._kept.get((layout.topic, layout.generation, dictionary_id))

    def keep(self, layout: Layout, dictionary: Dictionary) -> None:
        """Keep a dictionary of the layout's generation."""
        if len(self._kept) >= MOST_KEPT:
            self._kept.pop(next(iter(self._kept)), None)
        self._kept[layout.topic, layout.generation, dictionary.id] = dictionary


class Expander:
    """Makes values of a layout's frames, up to MOST_EXPANDED_BYTES in all.

    `load` reads a dictionary that is not known. Without it UnknownDictionary is raised.
    """

    def __init__(
        self, layout: Layout, dictionaries: Dictionaries, load: Callable[[int], Dictionary] | None = None
    ) -> None:
        self._layout = layout
        self._dictionaries = dictionaries
        self._load = load
        self._left_bytes = MOST_EXPANDED_BYTES

    def expand(self, frame: bytes) -> bytes:
        """Return the value of a frame. Raises CodecError, TooLarge, and as `load`."""
        dictionary_id, size_bytes = read_head(frame)
        limit_bytes = self._layout.options.max_value_bytes
        if size_bytes > limit_bytes:
            raise CodecError(f"a compressed value names {size_bytes} bytes, the limit is {limit_bytes}")
        if size_bytes > self._left_bytes:
            expanded = MOST_EXPANDED_BYTES - self._left_bytes + size_bytes
            raise TooLarge("answer", expanded, MOST_EXPANDED_BYTES)
        self._left_bytes -= size_bytes
        return self._dictionary(dictionary_id).expand(frame, size_bytes)

    def _dictionary(self, dictionary_id: int) -> Dictionary:
        if not dictionary_id:
            return no_dictionary()
        if (known := self._dictionaries.known(self._layout, dictionary_id)) is not None:
            return known
        if self._load is None:
            raise UnknownDictionary(f"the dictionary {dictionary_id} has not been read yet")
        loaded = self._load(dictionary_id)
        self._dictionaries.keep(self._layout, loaded)
        return loaded


def load_dictionary(state: State, layout: Layout, dictionary_id: int, deadline: Deadline) -> Dictionary:
    """Read a dictionary of the layout's generation, from a copy that has it.

    Replicas may lag behind: primaries are asked before it counts as missing. Raises StateUnavailable where no
    copy has it, CorruptState where one has other bytes, and none has the dictionary.
    """
    field = redis_keys.dictionary_field(layout.generation, dictionary_id)
    failed: StateUnavailable | CorruptState | None = None
    for primary_only in (False, True):
        for tag in redis_keys.ALL_TAGS:
            key = redis_keys.dictionaries_key(layout.topic, tag)
            call = Call(routing.key_slot(key), (b"HGET", key, field))
            try:
                (data,) = state.run([call], deadline, primary_only=primary_only)
            except StateUnavailable as error:
                failed = error
                continue
            if data is not None:
                try:
                    return _decoded(key, data, dictionary_id)
                except CorruptState as error:
                    failed = failed or error
    raise failed or StateUnavailable(
        f"the dictionary {dictionary_id} of the values of topic {layout.topic!r} is missing in Redis", 2
    )


def _decoded(key: bytes, data: bytes, dictionary_id: int) -> Dictionary:
    try:
        dictionary = Dictionary(data)
    except CodecError as error:
        raise CorruptState(printable(key), str(error)) from error
    if dictionary.id != dictionary_id:
        raise CorruptState(printable(key), f"the dictionary {dictionary_id} is one of id {dictionary.id}")
    return dictionary
