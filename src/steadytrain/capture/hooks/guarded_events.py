"""The entry points through which patches and hooks report to a watcher, each behind its guard by construction.

An event that is missing in :data:`ENTRY_POINTS` cannot be reported, because the patches only get a
:class:`GuardedEvents`. So an error of ours in an entry point never reaches the script.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.tensors.gpu_state import is_capturing

MISSING: Any = object()
"""``fetch_begins`` returns this to let the script's own fetch happen, ``fetch_ends`` to keep its batch."""

ENTRY_POINTS: Mapping[str, tuple[str, Any]] = {
    "optimizer_made": ("finding the model", None),
    "step_begins": ("the gate", None),
    "step_ends": ("recording a step", None),
    "backward_begins": ("following backward", False),
    "backward_failed": ("following backward", None),
    "backward_ends": ("following backward", None),
    "samples_drawn": ("following the samples", None),
    "fetch_begins": ("following the data loader", MISSING),
    "fetch_ends": ("following the data loader", MISSING),
    "scaler_step_begins": ("following the gradient scaler", None),
    "scaler_step_ends": ("following the gradient scaler", None),
    "scaler_scales": ("following the gradient scaler", None),
    "gradients_zeroed": ("following zero_grad", None),
    "compile_called": ("watching compiled code", None),
    "forward_begins": ("following the calls of a module", None),
    "forward_ends": ("following the calls of a module", None),
    "load_watch": ("looking at what is loaded", None),
    "saving": ("looking at what is saved", None),
    "save_begins": ("noting a checkpoint", None),
    "save_ends": ("noting a checkpoint", None),
    "file_read": ("noting a checkpoint", None),
}
"""By name: what failed, in the words of the message, and what the patch gets then: the script's call goes on as without
us."""

IN_A_STEP = frozenset(
    {
        "step_begins",
        "step_ends",
        "backward_begins",
        "backward_failed",
        "backward_ends",
        "scaler_step_begins",
        "scaler_step_ends",
        "scaler_scales",
        "gradients_zeroed",
        "forward_begins",
        "forward_ends",
    }
)
"""What is left out while a CUDA graph is captured: nothing is computed then, and a read would end the capture."""

CAPTURED = (
    "the script captures training steps in a CUDA graph. Its replays run without Python: "
    "their losses and gradients are not watched"
)

AROUND = {
    "clip": "reading the gradients before clipping",
    "clip_by_value": "reading the gradients before clipping",
}
"""Entry points that make the script's call themselves: their first argument is torch's own function."""


class GuardedEvents:
    """The entry points of ``events``, guarded. Those of :data:`AROUND` are taken with :meth:`around`."""

    def __init__(self, events: Any, guard: Guard) -> None:
        self._events = events
        self.guard = guard
        for name, (what, answer) in ENTRY_POINTS.items():
            call = guard.wrap(getattr(events, name), answer, what=what)
            setattr(self, name, self._but_in_a_graph(call, name, answer) if name in IN_A_STEP else call)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def around(self, name: str, original: Any) -> Any:
        """``original``, called by the entry point ``name``, exactly once."""
        call = self.guard.around(getattr(self._events, name), original, what=AROUND[name])

        @functools.wraps(call)
        def outside(*args: Any, **kwargs: Any) -> Any:
            return (original if is_capturing() else call)(*args, **kwargs)

        return outside

    def _but_in_a_graph(self, call: Callable[..., Any], name: str, answer: Any) -> Callable[..., Any]:
        """``call``, left out while a CUDA graph is captured."""

        @functools.wraps(call)
        def outside(*args: Any, **kwargs: Any) -> Any:
            if not is_capturing():
                return call(*args, **kwargs)
            if name == "step_begins":
                self.guard.warn(CAPTURED)
            return answer

        return outside
