"""How a frozen value becomes plain JSON and comes back: by the types of its fields.

A value derives from :class:`JsonValue` (an object, a key a field) or :class:`JsonRow` (a list, an entry a field). What
comes back is checked against the declared types at every depth. A float that is not finite is a text in the document.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

ValueT = TypeVar("ValueT", bound="JsonValue")
RowT = TypeVar("RowT", bound="JsonRow")


class JsonValue:
    """Base of frozen dataclasses that become a JSON object.

    ``keys`` names the keys in their order, where they are not the fields: ``name``, or ``key:name``, of a field or a
    property. ``schema`` is put first under that name. A key whose field has a default may be missing in a document;
    one that is no field is passed over, or refused where the class is ``closed``.
    """

    _keys: ClassVar[str] = ""
    _schema: ClassVar[str | None] = None
    _closed: ClassVar[bool] = False

    def __init_subclass__(cls, keys: str = "", schema: str | None = None, closed: bool = False) -> None:
        cls._keys, cls._schema, cls._closed = keys, schema, closed

    def to_json(self) -> dict[str, Any]:
        """The document: dictionaries, lists, texts, numbers and None."""
        head = {} if self._schema is None else {"schema": self._schema}
        return head | {key: plain(getattr(self, name), hint) for key, name, hint in _entries(type(self))}

    @classmethod
    def from_json(cls: type[ValueT], data: Mapping[str, Any]) -> ValueT:
        """The value of a document.

        Raises:
            KeyError: a key is missing.
            AttributeError, TypeError, ValueError: something in it is of another type, or not known.
        """
        keys = {name: key for key, name, _ in _entries(cls)}
        if cls._closed and not set(data) <= set(keys.values()):
            raise ValueError(f"{', '.join(sorted(set(data) - set(keys.values())))}: no field of {cls.__name__}")
        found = {}
        for field in fields(cls):  # type: ignore[arg-type]
            key = keys.get(field.name, field.name)
            if key in data or _needed(field):
                found[field.name] = valued(data[key], _hints(cls)[field.name])
        return cls(**found)


class JsonRow:
    """Base of frozen dataclasses that become a JSON list: short ones, of which there are many."""

    def to_json(self) -> list[Any]:
        return [plain(getattr(self, name), hint) for _, name, hint in _entries(type(self))]

    @classmethod
    def from_json(cls: type[RowT], data: list[Any]) -> RowT:
        return cls(*(valued(entry, hint) for entry, (_, _, hint) in zip(data, _entries(cls), strict=True)))


def number_to_json(value: float) -> float | str:
    """A float as strict JSON: NaN and the infinities become the strings ``nan``, ``inf`` and ``-inf``."""
    return float(value) if math.isfinite(value) else str(float(value))


def number_from_json(value: float | str) -> float:
    """The inverse of :func:`number_to_json`."""
    return float(value)


def plain(value: Any, hint: Any) -> Any:
    """``value`` of the type ``hint`` as JSON; what has no type is taken as it is."""
    if value is None:
        return None
    hint = _one(hint)
    if hint is float:
        return number_to_json(value)
    if hasattr(value, "to_json"):
        return value.to_json()
    inner = get_args(hint)
    if isinstance(value, Mapping):
        return {name: plain(entry, inner[1]) for name, entry in value.items()} if inner else dict(value)
    if get_origin(hint) is tuple:
        return [plain(entry, inner[0]) for entry in value]
    return value


def valued(data: Any, hint: Any) -> Any:
    """The inverse of :func:`plain`.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: ``data`` is of another type.
    """
    if data is None and type(None) in get_args(hint):
        return None
    hint = _one(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        if data not in inner:
            raise ValueError(f"{data!r} is none of {', '.join(map(str, inner))}")
        return data
    if origin is tuple:
        return tuple(valued(entry, inner[0]) for entry in data)
    if origin is Mapping:
        return {valued(name, inner[0]): valued(entry, inner[1]) for name, entry in data.items()}
    if hint is Any or origin is not None:
        return data
    if issubclass(hint, (JsonValue, JsonRow)):
        return hint.from_json(data)
    allowed = (int, float, str) if hint is float else hint
    if not isinstance(data, allowed) or isinstance(data, bool) is not (hint is bool):
        raise ValueError(f"{data!r} where {hint.__name__} was expected")
    return number_from_json(data) if hint is float else data


def _listed(cls: type) -> tuple[tuple[str, str, Any], ...]:
    """Key, attribute and type of all that stands in a document of ``cls``."""
    keys: str = getattr(cls, "_keys", "") or " ".join(field.name for field in fields(cls))
    return tuple((key, name or key, _hint(cls, name or key)) for key, _, name in _split(keys))


def _split(keys: str) -> Iterator[tuple[str, str, str]]:
    return (entry.partition(":") for entry in keys.split())


def _hint(cls: type, name: str) -> Any:
    found = inspect.getattr_static(cls, name, None)
    return get_type_hints(found.fget)["return"] if isinstance(found, property) else _hints(cls)[name]


_hints: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)
_entries: Callable[[Any], tuple[tuple[str, str, Any], ...]] = functools.cache(_listed)


def _one(hint: Any) -> Any:
    """``X`` of ``X | None``; of other unions nothing is known."""
    if get_origin(hint) in (Union, UnionType):
        others = [argument for argument in get_args(hint) if argument is not type(None)]
        return others[0] if len(others) == 1 else Any
    return hint


def _needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
