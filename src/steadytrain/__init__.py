"""steadytrain finds out why a training run went wrong, proves it, and mends it.

``steadytrain run train.py`` watches an unmodified script; ``steadytrain.watch(model, optimizer)`` does the same from
inside one. Importing this package imports neither torch nor anything else that is slow: the names below are
loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steadytrain.core.version import __version__ as __version__

if TYPE_CHECKING:
    from steadytrain.attach import watch
    from steadytrain.capture.step.watcher import RunStopped
    from steadytrain.preflight_runs.in_code import preflight
    from steadytrain.storage.run_search import load_run

__all__ = ["RunStopped", "__version__", "load_run", "preflight", "watch"]


def __getattr__(name: str) -> Any:
    if name in ("RunStopped", "watch"):
        from steadytrain import attach

        return getattr(attach, name)
    if name == "preflight":
        from steadytrain.preflight_runs import in_code

        return in_code.preflight
    if name == "load_run":
        from steadytrain.storage import run_search

        return run_search.load_run
    raise AttributeError(f"module 'steadytrain' has no attribute {name!r}")
