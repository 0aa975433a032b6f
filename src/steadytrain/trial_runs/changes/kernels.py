"""The same mathematics with other code: no compilation, no fused attention, one thread, no loader workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader

from steadytrain.core.torch_private import COMPILE_TIMES, COMPILED_CALL, COUNTERS, ORIGINAL_MODULE
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.function_stand_ins import ATTENTION
from steadytrain.trial_runs.launched_script import Launched


@final
@dataclass
class Eager(LiveChange):
    """Compiled code runs as plain Python (``torch.compiler.set_stance("force_eager")``)."""

    nothing = "nothing is compiled"

    def begin(self, process: Launched) -> None:
        torch.compiler.set_stance("force_eager")
        if any(_is_compiled(module) for root in process.roots for module in root.modules()) or _compiled_something():
            self.touch()


@final
@dataclass
class MathAttention(LiveChange):
    """``scaled_dot_product_attention`` uses matrix products and a softmax, never a fused kernel."""

    nothing = "no fused attention is called"

    def begin(self, process: Launched) -> None:
        def by_products(original: Any, *args: Any, **kwargs: Any) -> Any:
            self.touch()
            with sdpa_kernel(SDPBackend.MATH):
                return original(*args, **kwargs)

        process.functions.replace(ATTENTION, by_products)


@final
@dataclass
class OneThread(LiveChange):
    """CPU operations run on one thread."""

    nothing = "it runs on one thread already"

    def begin(self, process: Launched) -> None:
        if torch.get_num_threads() > 1:
            torch.set_num_threads(1)
            self.touch()


@final
@dataclass
class OneWorker(LiveChange):
    """Data loaders fetch in the training process, one batch at a time."""

    is_early = True
    own_batches = True
    nothing = "no data loader has workers"

    def early(self, process: Launched) -> None:
        original = DataLoader.__init__
        change = self

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            if kwargs.get("num_workers"):
                change.touch()
                kwargs["num_workers"] = 0
                for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"):
                    kwargs.pop(name, None)
            original(self, *args, **kwargs)

        DataLoader.__init__ = init  # type: ignore[method-assign]


def _is_compiled(module: nn.Module) -> bool:
    return ORIGINAL_MODULE.on(module) is not None or COMPILED_CALL.on(module) is not None


def _compiled_something() -> bool:
    return bool(COMPILE_TIMES.loaded() or (COUNTERS.loaded() or {}).get("frames"))
