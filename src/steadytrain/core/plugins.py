"""What all kinds of plug-ins share: their names, how they are found, and their documentation.

A plug-in is a class. It is found because its file lies in the package of its kind, or because an installed distribution
names it under the kind's entry-point group. Nothing registers itself. A ``Kind`` is declared beside its contract. The
name of a plug-in is its class name in kebab case; its docstring and the values of its fields are its documentation. Not
here: what a plug-in does.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from steadytrain.core.installed import entry_points
from steadytrain.core.plugin_source import class_in_source, file_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

API_VERSION = 1
"""Version of the contracts of all kinds. A plug-in with another ``api_version`` is refused. The version rises when a
change to a contract would break plug-ins written for it.
"""

ENTRY_POINTS_MAX = 256
NEAR_MAX = 3
NEARNESS_MIN = 0.6
NEAR_PART_MIN = 3
"""A name of fewer letters is a part of too many others."""

NEAR_LISTED_MAX = 8

Plugin = TypeVar("Plugin")
Default = TypeVar("Default")


@dataclass(frozen=True)
class Broken:
    """A plug-in of another package that cannot be used: where it was declared, and why it fails."""

    entry_point: str
    why: str


def threshold(default: Default, about: str) -> Default:
    """Declare a field of a plug-in: its default, and the source of that number. Pages show both."""
    return field(default=default, metadata={"about": about})


# Names.


def kebab(named: type | str) -> str:
    """Kebab case of a class or its name: ``LossSpike`` becomes ``loss-spike``, in ``loss_spike.py``."""
    return _kebab(named if isinstance(named, str) else named.__name__)


@lru_cache(maxsize=1024)  # detectors ask for their names at every step
def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def name_of(plugin: Any) -> str:
    """The name of a plug-in or of its class. A table row has its own name."""
    if isinstance(plugin, type):
        return kebab(plugin)
    name = getattr(plugin, "name", None)
    return name if isinstance(name, str) else kebab(type(plugin))


def similar(name: str, known: Iterable[str], *, cutoff: float = NEARNESS_MIN) -> list[str]:
    """The ``known`` names that ``name`` may be a misspelling of, the nearest first."""
    return difflib.get_close_matches(
        name.lower().replace("_", "-"), list(dict.fromkeys(known)), n=NEAR_MAX, cutoff=cutoff
    )


def nearest(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """Advice for a message about an unknown name: similar names, else ``otherwise``, else all ``known`` names."""
    names = list(dict.fromkeys(known))
    wanted = name.lower().replace("_", "-")
    parts = [other for other in names if wanted in other] if len(wanted) >= NEAR_PART_MIN else []
    near = similar(name, names) or parts[:NEAR_LISTED_MAX]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return otherwise or f"one of {', '.join(names)}"


# Finding.


def fields_without_default(cls: Any) -> str | None:
    """Name the required fields of a dataclass in words, None if it has none."""
    missing = [
        field.name
        for field in (fields(cls) if is_dataclass(cls) else ())
        if field.default is MISSING and field.default_factory is MISSING
    ]
    return f"fields without a default: {', '.join(missing)}" if missing else None


@dataclass(frozen=True)
class Kind(Generic[Plugin]):
    """One kind of plug-in, and the only way to find its plug-ins.

    Args:
        name: the word for messages: ``detector``.
        contract: the base class of each plug-in of this kind.
        package: the package with the shipped classes, imported on first use; "" for a kind that has values only.
        group: the entry-point group under which an installed distribution names its own.
        attempt: called once with a class of another package before it is used; raises if the class cannot be used.
            Built-in classes skip it.
        lacks: says what a class of another package lacks; None if nothing.
        several: whether a file may hold several plug-ins. Otherwise it holds exactly one, with the same name.
        older_group: a former name of ``group`` that still works.
        tables: a module, or a package of modules, whose ``ROWS`` are further plug-ins, as values instead of classes. An
            installed distribution may then name a value, too.
        heavy: whether the plug-ins import torch or another large library. :meth:`described` then reads their source.
        besides: files of the package that hold no plug-in.
        listed: more shipped values, which plug-ins of another kind list. They have pages, and their names stay free.
    """

    name: str
    contract: type[Plugin]
    package: str
    group: str
    attempt: Callable[[Any], object] = lambda cls: cls()
    lacks: Callable[[Any], str | None] = fields_without_default
    several: bool = False
    older_group: str = ""
    heavy: bool = False
    tables: str = ""
    besides: tuple[str, ...] = ()
    listed: Callable[[], Iterable[Plugin]] = tuple

    def files(self) -> list[Path]:
        """The files of the shipped plug-ins, sorted by name. Imports none of them."""
        if not self.package:
            return []
        (folder,) = importlib.import_module(self.package).__path__
        return [Path(folder, f"{name}.py") for name in self._modules()]

    def names(self) -> list[str]:
        """The names of the shipped plug-ins, in order. Imports no file if each holds one plug-in."""
        rows = [name_of(row) for row in self.rows()]
        if self.several:
            return [*map(kebab, self.shipped()), *rows]
        return [*(path.stem.replace("_", "-") for path in self.files()), *rows]

    def shipped(self) -> tuple[type[Plugin], ...]:
        """The shipped classes, in the order of their files."""
        if not self.package:
            return ()
        modules = [f"{self.package}.{name}" for name in self._modules()]
        if self.several:
            return tuple(cls for module in modules for cls in _of_module(module, self.contract))
        return tuple(of_file(module, self.contract) for module in modules)

    def rows(self) -> tuple[Plugin, ...]:
        """The shipped plug-ins that are values."""
        if not self.tables:
            return ()
        module = importlib.import_module(self.tables)
        within = [f"{self.tables}.{name}" for name in module_names(module)] if hasattr(module, "__path__") else []
        return tuple(row for one in (module, *map(importlib.import_module, within)) for row in getattr(one, "ROWS", ()))

    def made(self) -> tuple[Plugin, ...]:
        """An instance of every usable plug-in: the shipped ones, then those of other packages."""
        found: tuple[Any, ...] = (*self.shipped(), *self.rows(), *self.outside())
        return tuple(one() if isinstance(one, type) else one for one in found)

    def one(self, name: str) -> type[Plugin]:
        """The class called ``name``. If each file holds one plug-in, only that file is imported.

        Raises:
            LookupError: no plug-in has that name.
        """
        if not self.several and name in self.names():
            return of_file(f"{self.package}.{name.replace('-', '_')}", self.contract)
        others = self.classes() if self.several else self.outside()
        found = next((cls for cls in others if kebab(cls) == name), None)
        if found is None:
            raise LookupError(f"no {self.name} is called {name!r}")
        return found

    def outside(self) -> tuple[type[Plugin], ...]:
        """The usable classes of other packages, sorted by the names of their entry points."""
        return _good(self._declared())

    def broken(self) -> tuple[Broken, ...]:
        """The plug-ins of other packages that cannot be used."""
        return _bad(self._declared())

    def classes(self) -> tuple[type[Plugin], ...]:
        """Every usable class: the shipped ones, then those of other packages."""
        return (*self.shipped(), *self.outside())

    def described(self, *, outside: bool = True) -> tuple[type[Plugin], ...]:
        """The classes and values for their pages: docstrings, fields and traits, the shipped ones by name.

        For a heavy kind the classes come from the source and serve no other use.
        """
        classes: tuple[Any, ...] = tuple(map(self._described, self.files())) if self.heavy else self.shipped()
        shipped = {name_of(one): one for one in (*classes, *self.rows(), *self.listed())}
        added = _good(self._declared(described=self.heavy)) if outside else ()
        return (
            *(shipped[name] for name in sorted(shipped)),
            *(one for one in added if name_of(one) not in shipped),
        )

    def not_described(self) -> tuple[Broken, ...]:
        """The plug-ins of other packages that :meth:`described` leaves out."""
        return _bad(self._declared(described=self.heavy))

    def _modules(self) -> list[str]:
        return module_names(importlib.import_module(self.package), besides=self.besides)

    def _described(self, path: Path) -> type[Plugin]:
        return cast("type[Plugin]", _shipped_source(path, self.package, cast(Any, self.contract)))

    def _declared(self, *, described: bool = False) -> list[type[Plugin] | Broken]:
        groups = filter(None, (self.group, self.older_group))
        points = [point for group in groups for point in entry_points(group=group)]
        points.sort(key=lambda point: (point.name, point.value))
        taken = set(self.names()) if points else set()
        found: list[type[Plugin] | Broken] = []
        for point in points[:ENTRY_POINTS_MAX]:
            found.append(self._loaded(point, taken, described=described))
            if not isinstance(found[-1], Broken):
                taken.add(name_of(found[-1]))
        return found

    def _loaded(self, point: EntryPoint, taken: Collection[str], *, described: bool) -> type[Plugin] | Broken:
        where = f"{point.name} = {point.value}"
        try:
            path = file_of(point.module) if described else None
            cls = class_in_source(path, lambda name: name == point.attr, self.contract) if path is not None else None
            is_usable = cls is None
            if cls is None:
                cls = point.load()
            else:
                cls.__module__ = point.module
            why = self._refused(cls, taken)
            if why is not None:
                return Broken(where, why)
            if is_usable and isinstance(cls, type):
                self.attempt(cls)
        except Exception as error:  # whatever another package's import does, it must not affect the others
            return Broken(where, f"{type(error).__name__}: {error}")
        return cast("type[Plugin]", cls)

    def _refused(self, cls: Any, taken: Collection[str]) -> str | None:
        is_value = bool(self.tables) and isinstance(cls, self.contract)
        if not is_value and not (issubclass(type(cls), type) and issubclass(cls, self.contract)):
            return f"{cls!r} is not a subclass of {self.contract.__module__}.{self.contract.__name__}"
        version = getattr(cls, "api_version", API_VERSION)
        if version != API_VERSION:
            return f"written for version {version} of the plug-in API; this steadytrain has version {API_VERSION}"
        return self.lacks(cls) or (f"the name {name_of(cls)} is taken" if name_of(cls) in taken else None)


@cache  # a run asks for all of a kind, and parsing them takes 15 ms
def _shipped_source(path: Path, package: str, contract: Any) -> Any:
    stem = path.stem.replace("_", "-")
    found: Any = class_in_source(path, lambda name: kebab(name) == stem, contract)
    assert found is not None, f"{path.name} holds no class that is called {stem}"
    found.__module__ = f"{package}.{path.stem}"
    return found


def _good(declared: Iterable[type[Plugin] | Broken]) -> tuple[type[Plugin], ...]:
    return tuple(found for found in declared if not isinstance(found, Broken))


def _bad(declared: Iterable[type[Plugin] | Broken]) -> tuple[Broken, ...]:
    return tuple(found for found in declared if isinstance(found, Broken))


def module_names(package: ModuleType, *, besides: Collection[str] = ()) -> list[str]:
    """The names of the modules in a package that hold a plug-in, sorted. Skips ``besides`` and names that begin with
    ``_``.
    """
    return [name for name in _modules_of(tuple(package.__path__)) if name not in besides]


@cache  # no file of ours comes or goes while a process runs, and a page asks for each kind several times
def _modules_of(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(one.name for one in pkgutil.iter_modules(folders) if not one.name.startswith("_")))


def of_file(module_name: str, base: type[Plugin]) -> type[Plugin]:
    """The subclass of ``base`` in one of our files. The assertions check our own rule: one class per file, with the
    file's name.
    """
    classes = _of_module(module_name, base)
    assert len(classes) == 1, f"{module_name} holds {len(classes)} of {base.__name__}; one file, one class"
    (cls,) = classes
    stem = module_name.rpartition(".")[2]
    assert kebab(cls) == stem.replace("_", "-"), f"{cls.__name__} in {stem}.py is not called {stem.replace('_', '-')}"
    return cls


def _of_module(module_name: str, base: type[Plugin]) -> list[type[Plugin]]:
    module = importlib.import_module(module_name)
    return [
        value
        for value in vars(module).values()
        # Not isinstance: on Python 3.10 it takes an alias such as list[int] for a type.
        if issubclass(type(value), type) and issubclass(value, base) and value.__module__ == module_name
        if not inspect.isabstract(value)
    ]
