"""Run a callback right after a module has been imported for the first time.

torch is never imported ahead of the script: a script sets ``CUDA_VISIBLE_DEVICES`` or allocator options before its
own ``import torch``, and those must still be read. Idea and shape are those of ``sys.meta_path`` finders; the loader
found by the others is wrapped, never replaced.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def after_import(name: str, callback: Callable[[], None]) -> None:
    """Call ``callback`` once ``name`` is imported: now if it already is, else right after its own code ran."""
    if name in sys.modules:
        callback()
        return
    sys.meta_path.insert(0, _Finder(name, callback))


def forget_imports() -> None:
    """Take every finder of ours out of ``sys.meta_path``."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]


class _Finder(importlib.abc.MetaPathFinder):
    """Stays until the module has run: libraries ask ``importlib.util.find_spec`` whether it exists long before that."""

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name = name
        self._callback = callback
        self._searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name or self._searching:
            return None
        self._searching = True  # the search below walks the other finders, and comes by here again
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec

    def module_has_run(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._callback()


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader  # so that the module looks as it would without us
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.module_has_run()
