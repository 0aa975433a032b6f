"""Read the class of a plug-in from its source, for kinds whose plug-ins import torch but whose pages do not need it.

The result is a class without methods. It has the docstring, fields and literal class variables of the original, and the
contract as its base. Not here: how such a class is used.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Any, TypeVar

Plugin = TypeVar("Plugin")


def class_in_source(path: Path, is_it: Callable[[str], bool], contract: type[Plugin]) -> type[Plugin] | None:
    """The first class in the file ``path`` for whose name ``is_it`` returns True, None if there is none."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = next((node for node in tree.body if isinstance(node, ast.ClassDef) and is_it(node.name)), None)
    if node is None:
        return None
    namespace: dict[str, Any] = {"__doc__": inspect.cleandoc(ast.get_docstring(node) or "")}
    found: list[Any] = []
    for entry in node.body:
        names, value = _assigned(entry)
        if value is None:
            continue
        if isinstance(value, ast.Call):
            given = {word.arg: _literal(word.value) for word in value.keywords}
            if isinstance(value.func, ast.Name) and value.func.id == "threshold":
                default, about = map(_literal, value.args)
                given = {"default": default, "metadata": {"about": about}}
            keep = {key: given[key] for key in ("default", "metadata") if given.get(key, _UNKNOWN) is not _UNKNOWN}
            found += [(one, object, field(**keep)) for one in names]
        elif (known := _literal(value)) is not _UNKNOWN:
            namespace |= dict.fromkeys(names, known)
    return make_dataclass(node.name, found, bases=(contract,), namespace=namespace, frozen=True)


def file_of(module: str) -> Path | None:
    """The file of an installed module, found without importing it or its submodules; None if there is none."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    if not inner:
        return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    for folder in spec.submodule_search_locations or ():
        place = Path(folder, *inner)
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                return path
    return None


_UNKNOWN = object()


def _assigned(entry: ast.stmt) -> tuple[list[str], ast.expr | None]:
    if isinstance(entry, ast.AnnAssign):
        return ([entry.target.id], entry.value) if isinstance(entry.target, ast.Name) else ([], None)
    if isinstance(entry, ast.Assign):
        return [target.id for target in entry.targets if isinstance(target, ast.Name)], entry.value
    return [], None


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _UNKNOWN
