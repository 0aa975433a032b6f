"""A smaller gradient of embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from torch import Tensor, nn
from torch.nn import functional

from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.launched_script import CannotApplyError, Launched

NO_EMBEDDING = "the model has no nn.Embedding"


@final
@dataclass
class ShrinkEmbeddingGradient(LiveChange):
    """Multiplies the gradient that flows into the output of each embedding lookup by ``share``.

    The gradient of ``share * out + (1 - share) * out.detach()`` (GLM-130B, arXiv 2210.02414, section 3.1, share 0.1),
    with the bits of the forward as they were. A weight that is tied to the head keeps the head's part of its gradient.
    """

    share: float = 0.1
    nothing = "no embedding is looked up by torch's function"

    def check(self) -> None:
        if not 0.0 <= self.share < 1.0:
            raise ValueError(f"share {self.share}: must be at least 0 and below 1")

    def begin(self, process: Launched) -> None:
        if not any(isinstance(module, nn.Embedding) for module in process.modules()):
            raise CannotApplyError(NO_EMBEDDING)
        process.functions.replace((functional.embedding,), self._look_up)

    def _look_up(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        out = original(*args, **kwargs)
        if isinstance(out, Tensor) and out.requires_grad:
            self.touch()
            share = self.share
            out.register_hook(lambda gradient: gradient * share)  # type: ignore[no-untyped-call]
        return out
