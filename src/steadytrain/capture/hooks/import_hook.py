"""Runs a callback right after the first import of a module.

steadytrain never imports torch before the script does: a script may set ``CUDA_VISIBLE_DEVICES`` or allocator options
before its own ``import torch``, and torch must read them. This uses a ``sys.meta_path`` finder. It wraps the loader
that the other finders return and never replaces it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from steadytrain.core.own_errors import own


def after_import(name: str, callback: Callable[[], None]) -> Callable[[], None]:
    """Call ``callback`` once ``name`` is imported: now if it already is, else right after its code has run. If its code
    is running now, as it does where it imports torch itself, at the next import of another module after that.

    An error of ``callback`` reaches the script's import: a guest's callback must be guarded.

    Returns:
        A function that takes the wish back, and with it all that ``callback`` holds. It may be called at any time.
    """
    if name in sys.modules and not _runs(name):
        callback()
        return _nothing
    finder = _AfterNow(name, callback) if name in sys.modules else _Finder(name, callback)
    sys.meta_path.insert(0, finder)
    return finder.leave


def _nothing() -> None:
    pass


def forget_imports() -> None:
    """Remove all our finders from ``sys.meta_path``."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder | _AfterNow)]


def _runs(name: str) -> bool:
    """Whether the module is being imported now."""
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


class _AfterNow(importlib.abc.MetaPathFinder):
    """Finds nothing. Asked for any module, it looks whether the code of its own one has run."""

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name = name
        self._callback = callback

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if self in sys.meta_path and not _runs(self._name):
            self.leave()
            if self._name in sys.modules:
                self._callback()
        return None

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)


class _Finder(importlib.abc.MetaPathFinder):
    """Stays until the module has run, because libraries call ``importlib.util.find_spec`` for it long before."""

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name = name
        self._callback = callback
        self._searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name or self._searching:
            return None
        self._searching = True  # the search below asks all finders, including this one
        try:
            spec = importlib.util.find_spec(fullname)
        except own(Exception):  # the search without us goes on, and fails in its own way
            return None
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.module_has_run)
        return spec

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def module_has_run(self) -> None:
        if self in sys.meta_path:
            self.leave()
            self._callback()


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, after: Callable[[], None]) -> None:
        self._loader = loader
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader  # the module looks as it would without steadytrain
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._after()
