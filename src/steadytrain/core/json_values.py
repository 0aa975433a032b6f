"""Convert frozen values to plain JSON and back, guided by the types of their fields.

A value derives from :class:`JsonValue` (an object with a key per field) or :class:`JsonRow` (a list with an entry per
field). Reading checks the declared types at every depth. The document holds a non-finite float as a string.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

ValueT = TypeVar("ValueT", bound="JsonValue")
RowT = TypeVar("RowT", bound="JsonRow")


class JsonValue:
    """Base of frozen dataclasses that become a JSON object.

    ``keys`` lists the keys in their order if they differ from the fields: each is ``name`` or ``key:name``, for a field
    or a property. ``schema`` becomes the first entry. Reading accepts a missing key if the field has a default. It
    ignores an unknown key, or refuses it if the class is ``closed``.
    """

    _keys: ClassVar[str] = ""
    _schema: ClassVar[str | None] = None
    _closed: ClassVar[bool] = False

    def __init_subclass__(cls, keys: str = "", schema: str | None = None, closed: bool = False) -> None:
        cls._keys, cls._schema, cls._closed = keys, schema, closed

    def to_json(self) -> dict[str, Any]:
        """The document: dictionaries, lists, strings, numbers and None."""
        head = {} if self._schema is None else {"schema": self._schema}
        return head | {key: write(getattr(self, name)) for key, name, write in _entries(type(self))}

    @classmethod
    def from_json(cls: type[ValueT], data: Mapping[str, Any]) -> ValueT:
        """Read the value from a document.

        Raises:
            KeyError: a key is missing.
            AttributeError, TypeError, ValueError: an entry has the wrong type, or a value that is not allowed.
        """
        keys = {name: key for key, name, _ in _entries(cls)}
        if cls._closed and not set(data) <= set(keys.values()):
            raise ValueError(f"{', '.join(sorted(set(data) - set(keys.values())))}: no field of {cls.__name__}")
        found = {}
        for field in fields(cls):  # type: ignore[arg-type]
            key = keys.get(field.name, field.name)
            if key in data or _needed(field):
                found[field.name] = reader(_hints(cls)[field.name])(data[key])
        return cls(**found)


class JsonRow:
    """Base of frozen dataclasses that become a JSON list: for short, frequent values."""

    def to_json(self) -> list[Any]:
        return [write(getattr(self, name)) for _, name, write in _entries(type(self))]

    @classmethod
    def from_json(cls: type[RowT], data: list[Any]) -> RowT:
        return cls(*(read(entry) for entry, read in zip(data, _readers(cls), strict=True)))


def number_to_json(value: float) -> float | str:
    """A float as strict JSON: NaN and infinities become the strings ``nan``, ``inf`` and ``-inf``."""
    return float(value) if math.isfinite(value) else str(float(value))


def number_from_json(value: float | str) -> float:
    """The inverse of :func:`number_to_json`."""
    return float(value)


@functools.cache
def writer(hint: Any) -> Callable[[Any], Any]:
    """The function that converts a value of the type ``hint`` to JSON. It leaves other values as they are."""
    hint, origin, inner = _one(hint), get_origin(_one(hint)), get_args(_one(hint))
    if origin is Literal or hint in (bool, int, str):
        return lambda value: value
    if origin is tuple:
        each = writer(inner[0])
        return lambda value: None if value is None else [each(entry) for entry in value]
    if origin is Mapping:
        each = writer(inner[1])
        return lambda value: None if value is None else {name: each(entry) for name, entry in value.items()}
    write = number_to_json if hint is float else _as_it_is
    return lambda value: None if value is None else write(value)


@functools.cache
def reader(hint: Any) -> Callable[[Any], Any]:
    """The inverse of :func:`writer`. It raises what :meth:`JsonValue.from_json` raises."""
    if type(None) in get_args(hint):
        read = reader(_one(hint))
        return lambda data: None if data is None else read(data)
    origin, inner = get_origin(_one(hint)), get_args(hint)
    if origin is tuple:
        each = reader(inner[0])
        return lambda data: tuple(each(entry) for entry in data)
    if origin is Mapping:
        name_of, each = reader(inner[0]), reader(inner[1])
        return lambda data: {name_of(name): each(entry) for name, entry in data.items()}
    if origin is Literal:
        return functools.partial(_one_of, inner)
    if _one(hint) is Any or origin is not None:
        return lambda data: data
    if issubclass(hint, (JsonValue, JsonRow)):
        from_json: Callable[[Any], Any] = hint.from_json
        return from_json
    return functools.partial(_of_type, hint)


def _as_it_is(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    return dict(value) if isinstance(value, Mapping) else value


def _one_of(known: tuple[Any, ...], data: Any) -> Any:
    if data not in known:
        raise ValueError(f"{data!r} is none of {', '.join(map(str, known))}")
    return data


def _of_type(hint: type, data: Any) -> Any:
    allowed: Any = (int, float, str) if hint is float else hint
    if not isinstance(data, allowed) or isinstance(data, bool) is not (hint is bool):
        raise ValueError(f"{data!r} where {hint.__name__} was expected")
    return number_from_json(data) if hint is float else data


def _listed(cls: type) -> tuple[tuple[str, str, Callable[[Any], Any]], ...]:
    """Key, attribute and writer of each entry in a document of ``cls``."""
    keys: str = getattr(cls, "_keys", "") or " ".join(field.name for field in fields(cls))
    found = (entry.partition(":") for entry in keys.split())
    return tuple((key, name or key, writer(_hint(cls, name or key))) for key, _, name in found)


def _hint(cls: type, name: str) -> Any:
    found = inspect.getattr_static(cls, name, None)
    return get_type_hints(found.fget)["return"] if isinstance(found, property) else _hints(cls)[name]


def _one(hint: Any) -> Any:
    """``X`` of ``X | None``, and ``Any`` of other unions."""
    if get_origin(hint) in (Union, UnionType):
        others = [argument for argument in get_args(hint) if argument is not type(None)]
        return others[0] if len(others) == 1 else Any
    return hint


def _needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


_hints: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)
_entries: Callable[[Any], tuple[tuple[str, str, Callable[[Any], Any]], ...]] = functools.cache(_listed)
_readers: Callable[[Any], tuple[Callable[[Any], Any], ...]] = functools.cache(
    lambda cls: tuple(reader(_hints(cls)[field.name]) for field in fields(cls))
)
