"""What all kinds of plug-ins share: their names, where they are found, and their documentation.

A plug-in is a class that is found because its file lies in the package of its kind, one class a file, or because an
installed distribution names it under the entry-point group of the same name; nothing registers itself. Its name is its
class name in kebab case, and its documentation its docstring with the values of its fields. Not here: what any of them
does.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import MISSING, dataclass, fields
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, TypeVar

ENTRY_POINTS_MAX = 256
NEAR_MAX = 3
NEARNESS_MIN = 0.5
SECTIONS = ("Means", "Causes", "Next")

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Broken:
    """A plug-in of another package that could not be used: where it was said to be, and why not."""

    entry_point: str
    why: str


@dataclass(frozen=True)
class Threshold:
    """A field of a plug-in: its default, and where that number comes from."""

    name: str
    value: Any
    about: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "about": self.about}


# Names.


def kebab(named: type | str) -> str:
    """``LossSpike``, the class or its name, is ``loss-spike``, in ``loss_spike.py``."""
    name = named if isinstance(named, str) else named.__name__
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def nearest(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """For a message on a name that nothing has: those that are near, or ``otherwise``, or all that are ``known``."""
    names = list(dict.fromkeys(known))
    wanted = name.lower().replace("_", "-")
    near = difflib.get_close_matches(wanted, names, n=NEAR_MAX, cutoff=NEARNESS_MIN)
    near = near or [other for other in names if wanted and wanted in other]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return otherwise or f"one of {', '.join(names)}"


# Finding.


def of_file(module_name: str, base: type[Kind]) -> type[Kind]:
    """The subclass of ``base`` in a file of ours. That it holds exactly one, of the right name, is our own promise."""
    module = importlib.import_module(module_name)
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module_name
    ]
    assert len(classes) == 1, f"{module_name} holds {len(classes)} of {base.__name__}; one file, one class"
    (cls,) = classes
    stem = module_name.rpartition(".")[2]
    assert kebab(cls) == stem.replace("_", "-"), f"{cls.__name__} in {stem}.py is not called {stem.replace('_', '-')}"
    return cls


def module_names(package: ModuleType, *, besides: Collection[str] = ()) -> list[str]:
    """The files of a package that hold a plug-in, in order: all but ``besides`` and those that begin with ``_``."""
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return sorted(name for name in names if not name.startswith("_") and name not in besides)


def of_package(package: ModuleType, base: type[Kind], *, besides: Collection[str] = ()) -> list[type[Kind]]:
    """The classes of all files of a package, in the order of the files."""
    return [of_file(f"{package.__name__}.{name}", base) for name in module_names(package, besides=besides)]


def of_others(
    group: str, base: type[Kind], taken: Iterable[str], lacks: Callable[[type[Kind]], str | None]
) -> tuple[tuple[Kind, ...], tuple[Broken, ...]]:
    """What installed distributions name under ``group``, each made with its defaults, and what of it cannot be used.

    Args:
        taken: names that are ours.
        lacks: what a class is without that it needs; None where it has all.
    """
    names = set(taken)
    found: list[Kind] = []
    failed: list[Broken] = []
    declared = sorted(entry_points(group=group), key=lambda point: (point.name, point.value))
    for entry_point in declared[:ENTRY_POINTS_MAX]:
        outcome = _load(entry_point, base, names, lacks)
        if isinstance(outcome, Broken):
            failed.append(outcome)
        else:
            names.add(kebab(type(outcome)))
            found.append(outcome)
    return tuple(found), tuple(failed)


def _load(
    entry_point: EntryPoint, base: type[Kind], taken: set[str], lacks: Callable[[type[Kind]], str | None]
) -> Kind | Broken:
    where = f"{entry_point.name} = {entry_point.value}"
    try:
        cls = entry_point.load()
        if not (isinstance(cls, type) and issubclass(cls, base)):
            return Broken(where, f"{cls!r} is not a subclass of {base.__module__}.{base.__name__}")
        lacking = lacks(cls)
        if lacking is not None:
            return Broken(where, lacking)
        if kebab(cls) in taken:
            return Broken(where, f"the name {kebab(cls)} is taken")
        return cls()
    except Exception as error:  # whatever another package's import does, it must not cost the others
        return Broken(where, f"{type(error).__name__}: {error}")


def fields_without_default(cls: Any) -> str | None:
    """For :func:`of_others`: the fields of a data class that cannot be left out."""
    missing = [field.name for field in fields(cls) if field.default is MISSING and field.default_factory is MISSING]
    return f"fields without a default: {', '.join(missing)}" if missing else None


# Documentation.


def split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """First sentence and sections of a cleaned docstring. A section is a heading with a colon over indented lines."""
    paragraphs: dict[str, list[str]] = {"": []}
    current = ""
    for line in text.splitlines():
        heading = line.rstrip().removesuffix(":")
        if heading in SECTIONS and line.rstrip().endswith(":"):
            current = heading
            paragraphs[current] = []
        else:
            paragraphs[current].append(line)
    summary = " ".join("\n".join(paragraphs.pop("")).split("\n\n")[0].split())
    return summary, {title: inspect.cleandoc("\n" + "\n".join(lines)) for title, lines in paragraphs.items()}


def thresholds_of(plugin: Any) -> tuple[Threshold, ...]:
    """The fields of a plug-in with the values that it has."""
    return tuple(
        Threshold(field.name, getattr(plugin, field.name), str(field.metadata.get("about", "not documented")))
        for field in fields(plugin)
    )


def threshold_rows(thresholds: Iterable[Threshold]) -> list[str]:
    """The part of a page in Markdown that has them, empty where there are none."""
    rows = [f"| `{t.name}` | {t.value} | {t.about}. |" for t in thresholds]
    return ["", "### Thresholds", "", "| field | default | |", "|---|---|---|", *rows] if rows else []
