"""Losses, batches and loops with a planted fault, and healthy ones that look alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from healthy_models import (  # noqa: E402
    Given,
    SmallGPT,
    given,
    gpt2,
    images,
    next_token,
    of_classes,
    residual_net,
    sentences,
    small_gpt,
    tabular,
    with_padding,
)
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

# -- optimizer, accumulation, rows ------------------------------------------------------------------------------------


def groups(matrices: float, vectors: float, rate: float = 1e-3, kind: Any = torch.optim.AdamW) -> Callable[[], Given]:
    def make() -> Given:
        all_of = small_gpt()
        parameters = list(all_of["model"].parameters())
        chosen = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": matrices},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": vectors},
        ]
        return {**all_of, "optimizer": kind(chosen, lr=rate)}

    return make


def accumulated() -> Given:
    """The mean over a micro-batch's own tokens: rows are of unequal length."""
    return {**given(gpt2(), with_padding()), "accumulation": 2}


def accumulated_right() -> Given:
    """Normalised by a number that is the same for all micro-batches of the step."""

    def loss(model: nn.Module, batch: Any) -> Tensor:
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        flat = logits[:, :-1].flatten(0, 1)
        return functional.cross_entropy(flat, batch["labels"][:, 1:].flatten(), reduction="sum") / 1000

    return {**given(gpt2(), with_padding(), loss), "accumulation": 2}


def place_matters() -> Given:
    all_of = tabular()

    class ByPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = all_of["model"]
            self.place = nn.Parameter(torch.randn(32, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + self.place[: len(x)]

    return given(ByPlace(), all_of["batches"], of_classes)


def copied_embedding() -> Given:
    torch.manual_seed(0)
    model = SmallGPT()
    model.head.weight = nn.Parameter(model.token.weight.detach().clone())
    return given(model, list(sentences()), next_token)


def says_tied() -> Given:
    model = gpt2()
    model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.02)
    return given(model, with_padding())


def single_rows() -> Given:
    all_of = residual_net()
    return {**all_of, "batches": [(x[:1], y[:1]) for x, y in images()]}


def two_rows() -> Given:
    all_of = residual_net()
    return {**all_of, "batches": [(x[:2], y[:2]) for x, y in images()]}


class Drops(nn.Module):
    def __init__(self, *, right: bool) -> None:
        super().__init__()
        self.one, self.two, self.right = nn.Linear(12, 32), nn.Linear(32, 3), right

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.one(x))
        return self.two(
            functional.dropout(hidden, 0.2, self.training) if self.right else functional.dropout(hidden, 0.2)
        )


def drops_always() -> Given:
    torch.manual_seed(0)
    return given(Drops(right=False), tabular()["batches"], of_classes)


def drops_in_training() -> Given:
    torch.manual_seed(0)
    return given(Drops(right=True), tabular()["batches"], of_classes)


class Forgets(nn.Module):
    """Hands its ids on and leaves the mask behind; it pools over all positions."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = gpt2()
        self.pooled = nn.Linear(32, 32)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> Any:
        hidden = self.inner.transformer(input_ids)[0]
        hidden = hidden + self.pooled(hidden.mean(dim=1, keepdim=True))
        logits = self.inner.lm_head(hidden)
        if labels is None:
            return {"logits": logits}
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}


def reads_padding() -> Given:
    return given(Forgets(), with_padding())


def padded_left() -> Given:
    return given(gpt2(), with_padding(side="left"))


def squeezes() -> Given:
    torch.manual_seed(0)

    class Squeezes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = tabular()["model"]

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x - x.mean(dim=0))

    return given(Squeezes(), tabular()["batches"], of_classes)


# -- loss functions ---------------------------------------------------------------------------------------------------


def with_loss(make: Callable[[], Given], loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], Given]:
    return lambda: {**make(), "loss_fn": lambda model, batch: loss(model(batch[0]), batch[1])}


def double_softmax(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(scores.softmax(-1), labels)


def likelihood_of_logits(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.nll_loss(scores, labels)


def sigmoid_twice(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(torch.sigmoid(scores).squeeze(-1), labels)


def softmax_of_one(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.binary_cross_entropy(scores.softmax(-1), labels[:, None])


def spread(scores: Tensor, targets: Tensor) -> Tensor:
    return functional.mse_loss(scores, targets)


def spread_by_hand(scores: Tensor, targets: Tensor) -> Tensor:
    return ((scores - targets) ** 2).mean()


def log_of_softmax(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.nll_loss(torch.log(scores.softmax(-1)), labels)


def summed(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(scores, labels, reduction="sum")


def log_softmax_then_nll(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.nll_loss(scores.log_softmax(-1), labels)
