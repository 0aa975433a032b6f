"""steadytrain finds out why a training run went wrong, proves it, and mends it.

``steadytrain run train.py`` watches an unmodified script; ``steadytrain.watch(model, optimizer)`` does the same from
inside one. Importing this package imports neither torch nor anything else that is slow: the names below are
loaded when they are first used. ``docs/api.md`` describes them, ``docs/stability.md`` says what stays as it is.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from steadytrain.core.errors import UsageError as UsageError
from steadytrain.core.version import __version__ as __version__

if TYPE_CHECKING:
    from inspect import Signature

    from steadytrain.api.diagnoses import diagnose as diagnose
    from steadytrain.api.failure_location import locate as locate
    from steadytrain.api.gates import gate as gate
    from steadytrain.api.log_analysis import analyze as analyze
    from steadytrain.api.method_steps import checklist as checklist
    from steadytrain.api.method_steps import debug as debug
    from steadytrain.api.pages import report as report
    from steadytrain.api.replays import replay as replay
    from steadytrain.attach import Watch as Watch
    from steadytrain.attach import watch as watch
    from steadytrain.capture.step.run_stopped import RunStopped as RunStopped
    from steadytrain.core.incident import Incident as Incident
    from steadytrain.diagnosis.answer import Diagnosis as Diagnosis
    from steadytrain.preflight_runs.in_code import preflight as preflight
    from steadytrain.storage.run_folder import Run as Run
    from steadytrain.storage.run_search import load_run as load_run

_PLACES = {
    "Diagnosis": "steadytrain.diagnosis.answer",
    "Incident": "steadytrain.core.incident",
    "Run": "steadytrain.storage.run_folder",
    "RunStopped": "steadytrain.capture.step.run_stopped",
    "Watch": "steadytrain.attach",
    "analyze": "steadytrain.api.log_analysis",
    "checklist": "steadytrain.api.method_steps",
    "debug": "steadytrain.api.method_steps",
    "diagnose": "steadytrain.api.diagnoses",
    "gate": "steadytrain.api.gates",
    "load_run": "steadytrain.storage.run_search",
    "locate": "steadytrain.api.failure_location",
    "preflight": "steadytrain.preflight_runs.in_code",
    "replay": "steadytrain.api.replays",
    "report": "steadytrain.api.pages",
    "watch": "steadytrain.attach",
}
"""Where each public name is loaded from when it is first used."""

_CALLED = ("gate", "locate", "replay", "report")
"""Public functions that a part of the package shares its name with. Python binds a part to its name here as soon as
anything imports it, so these parts can be called: ``steadytrain.replay`` is the part, and calling it the function."""

__all__ = ["UsageError", "__version__", *_PLACES]


class _Part(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the public function of this name; ``docs/api.md`` describes it."""
        return _load(self.__name__.rpartition(".")[2])(*arguments, **options)

    @property
    def __signature__(self) -> Signature:
        import inspect

        return inspect.signature(_load(self.__name__.rpartition(".")[2]))


class _Package(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        if name in _CALLED and isinstance(value, ModuleType):
            value.__class__ = _Part
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'steadytrain' has no attribute {name!r}")
    return importlib.import_module(f"steadytrain.{name}") if name in _CALLED else _load(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def _load(name: str) -> Any:
    return getattr(importlib.import_module(_PLACES[name]), name)
