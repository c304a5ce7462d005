"""What was made of schemas, which any writer may register: how much of it is kept, and how long making takes.

1. A cache is bounded by bytes, by an estimate from the length of the texts and the size of their patterns.
2. The parsers of schemas are C and Rust, which hold Python's interpreter: one of them works at a time, so
   that nobody waits for two in a row. The texts are short enough (CHARACTERS_LIMIT), and a JSON Schema cheap
   enough (`json_schema_cost`), for each to take less than 50 ms.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")
LIMIT_BYTES = 64 * 1024 * 1024
CHARACTER_BYTES = 50
"""What a character of a schema becomes: measured with records, enums, messages, maps; few are above it."""
CHARACTERS_LIMIT = 256 * 1024
"""Of an Avro or a Protobuf schema with all that it refers to."""
ONE_AT_A_TIME = threading.Lock()


class Encoder(NamedTuple):
    """What makes a value its bytes by a schema, and about what it takes in memory."""

    encode: Callable[[Any], bytes]
    size_bytes: int


class CompiledSchemas(Generic[T]):
    """The results that were used last, of at most `limit_bytes`, or one. For any thread."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept: dict[Hashable, tuple[T, int]] = {}
        self._lock = threading.Lock()
        self.size_bytes = 0

    def get(self, key: Hashable) -> T | None:
        """Return the result of a key, None where it is not kept."""
        with self._lock:
            found = self._kept.pop(key, None)
            if found is None:
                return None
            self._kept[key] = found
            return found[0]

    def keep(self, key: Hashable, result: T, size_bytes: int) -> T:
        """Keep a result of about so many bytes, and return it."""
        with self._lock:
            self._forget(key)
            while self._kept and self.size_bytes + size_bytes > self._limit_bytes:
                self._forget(next(iter(self._kept)))
            self._kept[key] = result, size_bytes
            self.size_bytes += size_bytes
        return result

    def _forget(self, key: Hashable) -> None:
        _, size_bytes = self._kept.pop(key, (None, 0))
        self.size_bytes -= size_bytes


def size_of(text: str, references: Sequence[tuple[str, str]]) -> int:
    """About how many bytes the result of a schema takes; `references`: names and texts."""
    return (len(text) + sum(len(each) for _, each in references)) * CHARACTER_BYTES


def one_at_a_time(make: Callable[..., T], text: str, references: Sequence[tuple[str, str]], *given: Any) -> T:
    """Call what makes something of an Avro or a Protobuf schema. Raises ValueError where it is too long."""
    if len(text) + sum(len(each) for _, each in references) > CHARACTERS_LIMIT:
        raise ValueError(f"the schema has more than {CHARACTERS_LIMIT} characters, with all it refers to")
    with ONE_AT_A_TIME:
        return make(text, *given)
