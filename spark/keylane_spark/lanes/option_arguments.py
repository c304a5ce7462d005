"""A topic's options as positional arguments of the function library, named once for Python and for Lua."""

from functools import cache
from typing import NamedTuple, Self

from keylane.model.records import Options
from keylane_spark.lanes.lane import LONGEST_MS


class OptionArguments(NamedTuple):
    """The arguments in their order, as numbers, 0 for none. Lua says `args[at + TTL_MS]`; `at` is the first.

    `marker_ms`: how long a tombstone's marker lasts. `compared`: 1 where records are compared with what is
    stored. `prefix_bytes`: the length of a Redis key before the record's own key. `ttl_ms`: the time to live.
    `history_count`, `history_age_ms`: how many records a history keeps, and how long. `insert_once`: 1 where
    a key's first value stays. `index_parts`: how many parts an index has.
    """

    marker_ms: int
    compared: int
    prefix_bytes: int
    ttl_ms: int
    history_count: int
    history_age_ms: int
    insert_once: int
    index_parts: int

    @classmethod
    def of(cls, options: Options, prefix_bytes: int) -> Self:
        """Return those of a topic's options."""
        own = {"prefix_bytes": prefix_bytes, "index_parts": options.index}
        return cls(**own, **{name: getattr(options, name) or 0 for name in cls._fields if name not in own})


@cache
def option_arguments(options: Options, prefix_bytes: int) -> tuple[bytes, ...]:
    """Return the arguments as the library takes them."""
    return tuple(b"%d" % min(number, LONGEST_MS) for number in OptionArguments.of(options, prefix_bytes))


def lua_names() -> bytes:
    """Return the line of Lua that names the arguments' places, counted from the first one."""
    fields = OptionArguments._fields
    names, places = ", ".join(map(str.upper, fields)), ", ".join(map(str, range(len(fields))))
    return f"local {names} = {places}\n".encode()
