"""Models and measurements that the tests of module outputs share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attending(nn.Module):
    """A frozen layer in evaluation mode, whose fast path must stay the one that is taken, and one that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval().requires_grad_(False)
        self.learning = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def train(self, mode: bool = True) -> Attending:
        super().train(mode)
        self.frozen.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.learning(self.frozen(x[:, None])).sum(-1)


def leftovers(model: nn.Module) -> list[Any]:
    hooks = [
        hook
        for module in model.modules()
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called", "_backward_hooks")
        for hook in getattr(module, kind).values()
    ]
    names = [functional.softmax, functional.scaled_dot_product_attention, functional.cross_entropy, torch.softmax]
    patched = [name for name in names if getattr(name, "__module__", "").startswith("steadytrain")]
    wrapped = [name for name in names if hasattr(name, "__wrapped__")]
    return [*hooks, *patched, *wrapped, *(["Tensor.softmax"] if "softmax" in vars(Tensor) else [])]
