"""Calls a user's function with rows: from an Arrow record batch to one. What it may return is checked.

The function gets the columns of ROWS, of rows with a key and a value; `timestamp` is null without one.
It returns a record batch with `offset` and `value` at least: the rows that it leaves out, and those whose
value is null, are deletions. If it raises, or returns anything else, it is called again with each half of the
rows, until the record that it fails on is alone.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from keylane.errors import BadConfig
from keylane_spark.rows.change_events import read_event
from keylane_spark.rows.records import Rows

Function: TypeAlias = Callable[[pa.RecordBatch], Any]

ROWS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
_TEXTS = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
_LONGEST_WHY = 300


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """A function's code, for the process that runs it. `name`: "module:function".

    `text`: its module's source, None where Python has none; the module is then imported where it runs.
    `folder`: where the module lies, for what it imports.
    """

    name: str
    folder: str = ""
    path: str = ""
    text: str | None = None


_run_modules: dict[str, tuple[str | None, ModuleType]] = {}
"""The modules of functions, by name, each with the source that was run: several topics may use one."""


class Called(NamedTuple):
    """What a function returned for n rows. `values`: null for those that it left out, or failed on.

    `failed`: the numbers of the rows on which it failed. `why`: the first failure, which may hold data.
    """

    values: pa.BinaryArray
    failed: list[int]
    why: str


@functools.cache
def read_code(name: str) -> FunctionCode:
    """Return the code of a function as it is now, once for each process. Raises BadConfig."""
    code = FunctionCode(name, *_read_module(name.partition(":")[0]))
    load(code)
    return code


@functools.cache
def _read_module(name: str) -> tuple[str, str, str | None]:
    """Return a module's folder, path and source. Raises BadConfig."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise BadConfig(f"transform: module {name!r} can't be imported: {error}") from error
    if spec is None:
        raise BadConfig(f"transform: there is no module {name!r} beside keylane.toml, and none is installed")
    read = getattr(spec.loader, "get_source", None)
    is_package = spec.submodule_search_locations is not None
    text = None if read is None or is_package else read(name)
    path = Path(spec.origin or "")
    return str(path.parents[name.count(".")]) if text is not None else "", str(path), text


@functools.cache
def load(code: FunctionCode) -> Function:
    """Return the function; its module runs once in each process. Raises BadConfig."""
    name, _, function = code.name.partition(":")
    if code.folder and code.folder not in sys.path:
        sys.path.append(code.folder)
    try:
        module = importlib.import_module(name) if code.text is None else _module_of(name, code)
    except BaseException as error:  # (whatever the module raises: a script may call sys.exit)
        raise BadConfig(f"transform {code.name!r}: module {name!r} fails with {_words(error)}") from error
    found = getattr(module, function, None)
    if not callable(found):
        raise BadConfig(f"transform {code.name!r}: module {name!r} has no function {function!r}")
    return found  # type: ignore[no-any-return]


def _module_of(name: str, code: FunctionCode) -> ModuleType:
    found = _run_modules.get(name)
    if found is not None and found[0] == code.text:
        return found[1]
    parent, _, _ = name.rpartition(".")
    if parent:
        importlib.import_module(parent)
    module = ModuleType(name)
    module.__file__, module.__package__ = code.path, parent
    module.__spec__ = ModuleSpec(name, None, origin=code.path)
    sys.modules[name] = module
    # The source that the driver has read: a file may have changed since, or not be here at all.
    exec(compile(code.text or "", code.path, "exec"), module.__dict__)  # noqa: S102
    _run_modules[name] = code.text, module
    return module


def call_on_rows(
    code: FunctionCode,
    rows: Rows,
    partition: int,
    *,
    of_events: bool,
    until_first_failure: bool,
    has_onlooker: bool = False,
) -> Called:
    """Call a function with rows of a partition, which have keys and values.

    `of_events`: the values are change events, and it gets their rows. With `until_first_failure` no row
    behind one that fails is judged. `has_onlooker`: KeyboardInterrupt is of who looks at a sample.
    """
    values = _rows_of_events(rows.values) if of_events else rows.values
    columns = [
        rows.keys,
        values,
        pa.array(rows.timestamps_ms, ROWS.field("timestamp").type, mask=rows.timestamps_ms <= 0),
        pa.array(np.full(len(rows), partition, np.int32)),
        pa.array(rows.offsets),
    ]
    caller = _Caller(load(code), until_first_failure, has_onlooker)
    parts = caller.call(pa.RecordBatch.from_arrays(columns, schema=ROWS), 0)
    found = pa.concat_arrays(parts) if parts else pa.array([], pa.binary())
    if len(found) < len(rows):
        found = pa.concat_arrays([found, pa.nulls(len(rows) - len(found), pa.binary())])
    return Called(found, caller.failed, caller.why)


@dataclass(slots=True)
class _Caller:
    function: Function
    until_first_failure: bool
    has_onlooker: bool = False
    failed: list[int] = field(default_factory=list)
    why: str = ""

    def call(self, batch: pa.RecordBatch, first: int) -> list[pa.BinaryArray]:
        """Return the values of the batch's rows, which begin at number `first`."""
        try:
            return [_values_of(self.function(batch), batch)]
        except BaseException as error:  # (whatever it raises: panics of Rust are no Exception)
            if self.has_onlooker and isinstance(error, KeyboardInterrupt):
                raise
            if len(batch) > 1:
                return self._call_with_halves(batch, first)
            self.failed.append(first)
            self.why = self.why or _words(error)
            return [pa.nulls(1, pa.binary())]

    def _call_with_halves(self, batch: pa.RecordBatch, first: int) -> list[pa.BinaryArray]:
        middle = len(batch) // 2
        parts = self.call(batch.slice(0, middle), first)
        if self.until_first_failure and self.failed:
            return parts
        return parts + self.call(batch.slice(middle), first + middle)


class _BadAnswer(Exception):
    """What the function returned is not what it may return."""


def _values_of(answer: Any, batch: pa.RecordBatch) -> pa.BinaryArray:
    """Return the values for a batch's rows, null for those that the answer lacks. Raises _BadAnswer."""
    if not isinstance(answer, pa.RecordBatch | pa.Table):
        raise _BadAnswer(f"it returned {type(answer).__name__}, not a RecordBatch")
    for name in ("offset", "value"):
        if answer.schema.names.count(name) != 1:
            raise _BadAnswer(f"it returned no column {name!r}, or several")
    offsets, values = _column(answer, "offset"), _column(answer, "value")
    if not pa.types.is_integer(offsets.type) or offsets.null_count:
        raise _BadAnswer(f"it returned offsets of type {offsets.type}, or null")
    if not any(is_text(values.type) for is_text in _TEXTS) and not pa.types.is_null(values.type):
        raise _BadAnswer(f"it returned values of type {values.type}: they are binary or string")
    own, found = batch.column("offset").to_numpy(), offsets.cast(pa.int64()).to_numpy()
    at = np.searchsorted(own, found)
    if (np.diff(at) <= 0).any() or (at == len(own)).any() or (own[at] != found).any():
        raise _BadAnswer("it returned offsets that it was not given, or in another order")
    if "key" in answer.schema.names:
        keys, given = _column(answer, "key"), batch.column("key").take(pa.array(at))
        if keys.type != pa.binary() or not keys.equals(given):
            raise _BadAnswer("it returned other keys than it was given")
    rows = np.full(len(own), -1, np.int64)
    rows[at] = np.arange(len(at))
    return values.cast(pa.binary()).take(pa.array(rows, mask=rows < 0))


def _column(answer: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    column = answer.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _rows_of_events(values: pa.BinaryArray) -> pa.BinaryArray:
    """The rows of change events, of which none deletes and all are valid."""
    rows = (read_event(value.decode()).row for value in values.to_pylist())
    return pa.array([None if row is None else row.encode() for row in rows], pa.binary())


def _words(error: BaseException) -> str:
    """Return an error's type and words, for the log, where it has any that can be had and encoded."""
    kind = type(error).__name__
    try:
        words = str(error) if isinstance(error, _BadAnswer) else f"{kind}: {error}"
    except BaseException:  # noqa: BLE001 (its class is the user's)
        words = kind
    words = " ".join(words.split())[:_LONGEST_WHY]
    return words.encode(errors="backslashreplace").decode()
