"""steadytrain finds out why a training run went wrong, proves it, and mends it.

``steadytrain run train.py`` watches an unmodified script; ``steadytrain.watch(model, optimizer)`` does the same from
inside one. Importing this package imports neither torch nor anything else that is slow: the names below are
loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steadytrain.attach import watch
    from steadytrain.capture.watcher import RunStopped

__version__ = "0.1.0"
__all__ = ["RunStopped", "__version__", "watch"]


def __getattr__(name: str) -> Any:
    if name in ("RunStopped", "watch"):
        from steadytrain import attach

        return getattr(attach, name)
    raise AttributeError(f"module 'steadytrain' has no attribute {name!r}")
