"""Functions that take the fields of a frozen dataclass as keywords: names, types and defaults stay in one place.

Such a function declares ``**options: Unpack[...]`` with a ``TypedDict`` of the same fields, which editors and type
checkers expand. :func:`takes_options` gives ``help``, IPython and Sphinx the same signature at run time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
Value = TypeVar("Value")


def takes_options(kind: type[Any]) -> Callable[[Function], Function]:
    """Show the fields of the dataclass ``kind`` as keyword-only parameters instead of ``**options``.

    After a line that ends with ``the fields of :class:`...kind`:``, the docstring gets the ``Args`` of ``kind``.
    """

    def with_signature(function: Function) -> Function:
        plain = inspect.signature(function)
        *own, last = plain.parameters.values()
        assert last.kind is inspect.Parameter.VAR_KEYWORD, f"{function.__qualname__} takes no **options"
        shown = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=field.type,
            )
            for field in fields(kind)
        ]
        parameters = sorted([*shown, *own], key=lambda one: one.kind)
        function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace(*_described(kind))
        function.__signature__ = plain.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return with_signature


def _described(kind: type[Any]) -> tuple[str, str]:
    """The end of the line that announces the fields, and the same with the fields' descriptions after it."""
    announced = f"{kind.__name__}`:\n"
    # Python 3.13 removes the indentation of docstrings by itself.
    _, _, fields_on = inspect.cleandoc(kind.__doc__ or "").partition("Args:\n")
    return announced, announced + fields_on.partition("\n\n")[0] + "\n"


def chosen(kind: type[Value], options: Mapping[str, Any], function: str) -> Value:
    """Build the dataclass ``kind`` from keyword options.

    Raises:
        TypeError: ``kind`` has no such field. The text names ``function``, the function that the user called.
    """
    for name in options:
        if name not in {field.name for field in fields(kind)}:  # type: ignore[arg-type]
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return kind(**options)
