"""Values as dataclasses, or as models of pydantic, which need not be installed."""

import contextlib
import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any
from uuid import UUID

from keylane_client.errors import InvalidArgument, ValueMismatch

_FROM_TEXT: dict[type, Callable[[Any], Any]] = {
    # Python 3.10 does not know the Z.
    datetime: lambda text: datetime.fromisoformat(text.replace("Z", "+00:00")),
    date: date.fromisoformat,
    UUID: UUID,
    Decimal: lambda number: Decimal(str(number)),
}
_UNIONS = (typing.Union, types.UnionType)


def require_model(model: type) -> None:
    """Raise InvalidArgument for what is neither a dataclass nor a model of pydantic."""
    if not (isinstance(model, type) and (dataclasses.is_dataclass(model) or _is_pydantic(model))):
        raise InvalidArgument(f"{model!r} is not a model: write a dataclass, or a model of pydantic")


def to_model(value: Any, model: type) -> Any:
    """Return a JSON value as an instance of the model. Raises ValueMismatch, with the field at fault.

    Fields of the value that a dataclass does not have are left out. Nested dataclasses, containers, optional
    fields, times, UUIDs, decimals and enums are made from what JSON has for them.
    """
    if isinstance(value, model):
        return value
    try:
        if _is_pydantic(model):
            return model.model_validate(value)  # type: ignore[attr-defined]
        return _convert(value, model, model.__name__)
    except ValueMismatch:
        raise
    except ValueError as error:  # pydantic's ValidationError is one
        text = " ".join(str(error).split())
        raise ValueMismatch(f"the value is not a {model.__name__}: {text}") from error


def to_json(value: Any) -> str:
    """Return a value, also of dataclasses and models of pydantic, as JSON. Raises InvalidArgument."""
    try:
        return json.dumps(value, default=_encode, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"the value is not JSON: {error}") from error


def _is_pydantic(model: Any) -> bool:
    return hasattr(model, "model_validate") and hasattr(model, "model_dump")


def _encode(value: Any) -> Any:
    if _is_pydantic(value):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} has no form in JSON")


@cache
def _types_of(model: type) -> Mapping[str, Any]:
    return typing.get_type_hints(model)


def _convert(value: Any, wanted: Any, where: str) -> Any:
    """Return the value as the type `wanted`. Raises ValueMismatch, which names `where` it is."""
    origin = typing.get_origin(wanted)
    if origin in _UNIONS:
        return _convert_union(value, typing.get_args(wanted), where)
    if origin is typing.Annotated:
        return _convert(value, typing.get_args(wanted)[0], where)
    if origin is typing.Literal:
        literals = typing.get_args(wanted)
        return value if value in literals else _fail(value, f"one of {', '.join(map(repr, literals))}", where)
    if origin is not None:
        return _convert_container(value, origin, typing.get_args(wanted), where)
    return _convert_plain(value, wanted, where)


def _convert_plain(value: Any, wanted: Any, where: str) -> Any:
    if dataclasses.is_dataclass(wanted):
        return _convert_object(value, typing.cast("type", wanted), where)
    if _is_pydantic(wanted):
        return wanted.model_validate(value)
    is_enum = isinstance(wanted, type) and issubclass(wanted, Enum)
    if parse := wanted if is_enum else _FROM_TEXT.get(wanted):
        try:
            return parse(value)
        except (ValueError, TypeError, AttributeError, ArithmeticError):
            return _fail(value, wanted, where)
    return _checked(value, type(None) if wanted is None else wanted, where)


def _convert_object(value: Any, model: type, where: str) -> Any:
    if not isinstance(value, dict):
        return _fail(value, model, where)
    types_of, found = _types_of(model), {}
    for each in dataclasses.fields(model):
        if each.init and each.name in value:
            found[each.name] = _convert(value[each.name], types_of[each.name], f"{where}.{each.name}")
        elif each.init and each.default is each.default_factory is dataclasses.MISSING:
            raise ValueMismatch(f"{where}.{each.name} is missing")
    return model(**found)


def _convert_union(value: Any, arguments: tuple[Any, ...], where: str) -> Any:
    for each in arguments:
        with contextlib.suppress(ValueMismatch):
            return _convert(value, each, where)
    return _fail(value, " | ".join(getattr(each, "__name__", str(each)) for each in arguments), where)


def _convert_container(value: Any, origin: type, arguments: tuple[Any, ...], where: str) -> Any:
    if issubclass(origin, Mapping):
        item = arguments[1] if arguments else Any
        members = _checked(value, dict, where)
        return {name: _convert(each, item, f"{where}[{name!r}]") for name, each in members.items()}
    kind = origin if origin in (tuple, set, frozenset) else list
    entries = _checked(value, list, where)
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(entries) != len(arguments):
            return _fail(value, f"array of {len(arguments)}", where)
        items = arguments
    else:
        items = (arguments[0] if arguments else Any,) * len(entries)
    return kind(
        _convert(each, item, f"{where}[{index}]")
        for index, (each, item) in enumerate(zip(entries, items, strict=True))
    )


def _checked(value: Any, wanted: Any, where: str) -> Any:
    if wanted is float and isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, bool) and wanted is not bool and wanted is not object:
        return _fail(value, wanted, where)
    if not isinstance(wanted, type) or isinstance(value, wanted):
        return value
    return _fail(value, wanted, where)


def _fail(value: Any, wanted: Any, where: str) -> typing.NoReturn:
    name = getattr(wanted, "__name__", str(wanted))
    raise ValueMismatch(f"{where} is {value!r:.60}, not {name}")
