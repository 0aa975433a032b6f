"""Models, batches and data with one planted fault each, beside what they need to be healthy.

Each function gives the arguments of ``steadytrain.preflight``. The healthy look-alikes are in ``healthy_models``.
"""

from __future__ import annotations

from typing import Any

import torch
from healthy_models import WORDS, Given, SmallGPT, given, hf_gpt2, next_token, of_classes, sentences, tabular
from torch import Tensor, nn
from torch.nn import functional


def changed(family: Given, change: Any) -> Given:
    """The batches of a family as ``change`` makes them."""
    return {**family, "batches": [change(number, dict(batch)) for number, batch in enumerate(family["batches"])]}


# Tokens and labels.


def without_labels(rows: int) -> Given:
    """The first ``rows`` rows of each batch have no label that counts."""

    def change(number: int, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        labels = batch["labels"].clone()
        labels[:rows] = -100
        return {**batch, "labels": labels}

    return changed(hf_gpt2(), change)


def padding_counts() -> Given:
    return changed(hf_gpt2(), lambda number, batch: {**batch, "labels": batch["input_ids"].clone()})


def end_is_masked() -> Given:
    """Padding is the end, and labels are masked by its value."""
    family = hf_gpt2()
    family["model"].config.pad_token_id = 1

    def change(number: int, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        ids = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, 1)
        return {**batch, "input_ids": ids, "labels": ids.masked_fill(ids == 1, -100)}

    return changed(family, change)


def begins_twice(family: Given) -> Given:
    """Rows begin with two tokens of number 2, which the configuration calls the beginning."""
    family["model"].config.bos_token_id = 2

    def change(number: int, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        ids = batch["input_ids"].clone()
        ids[:, :2] = 2
        return {**batch, "input_ids": ids, "labels": ids.masked_fill(batch["attention_mask"] == 0, -100)}

    return changed(family, change)


def all_masked() -> Given:
    def change(number: int, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        mask = batch["attention_mask"].clone()
        mask[0] = 0
        return {**batch, "attention_mask": mask, "labels": batch["labels"].masked_fill(mask == 0, -100)}

    return changed(hf_gpt2(), change)


# State.


class Forgetful(nn.Module):
    """Counts its calls in a plain attribute, and the output depends on it: no state dictionary holds that."""

    def __init__(self, *, kept: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 3)
        self.register_buffer("calls", torch.zeros(()), persistent=kept)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.linear(x) * (1.0 + 0.1 * torch.log1p(self.calls))


def forgetful(*, kept: bool = False) -> Given:
    torch.manual_seed(0)
    return given(Forgetful(kept=kept), tabular()["batches"], of_classes, rate=1e-2)


class HiddenMomentum(torch.optim.SGD):
    """Momentum that is kept outside of ``state``."""

    def __init__(self, params: Any, lr: float = 1e-2, **settings: Any) -> None:
        super().__init__(params, lr=lr)
        self.hidden: dict[int, Tensor] = {}

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    kept = self.hidden.setdefault(id(parameter), torch.zeros_like(parameter))
                    kept.mul_(0.9).add_(parameter.grad)
                    parameter.grad = kept.clone()
        return super().step(closure)


def hidden_momentum() -> Given:
    family = tabular()
    family["optimizer"] = HiddenMomentum(family["model"].parameters())
    return family


# Number formats.


def in_half(dtype: torch.dtype, *, rate: float) -> Given:
    """A model whose weights are in half precision, trained as they are."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 3)).to(dtype)

    def loss(model: nn.Module, batch: Any) -> Tensor:
        inputs, labels = batch
        return functional.cross_entropy(model(inputs.to(dtype)).float(), labels)

    return given(model, tabular()["batches"], loss, rate=rate)


def half_loss() -> Given:
    """Logits go into the loss in bfloat16; weights are in float32."""
    torch.manual_seed(0)
    family = tabular()

    def loss(model: nn.Module, batch: Any) -> Tensor:
        inputs, labels = batch
        return functional.cross_entropy(model(inputs).bfloat16(), labels)

    return {**family, "loss_fn": loss}


class Positions(nn.Module):
    """A table of positions, as numbers."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("position_ids", torch.arange(400.0).to(dtype))
        self.linear = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.position_ids[300].float() * 1e-6


def positions(dtype: torch.dtype) -> Given:
    torch.manual_seed(0)
    return given(Positions(dtype), tabular()["batches"], of_classes)


# Several processes.


def summed() -> Given:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        inputs, labels = batch
        return functional.cross_entropy(model(inputs), labels, reduction="sum")

    return {**tabular(), "loss_fn": loss}


def contrastive() -> Given:
    """Each row is told apart from the others of its batch."""

    def loss(model: nn.Module, batch: Any) -> Tensor:
        inputs, _ = batch
        one = functional.normalize(model(inputs), dim=1)
        return functional.cross_entropy(one @ one.roll(1, 0).T * 5.0, torch.arange(len(one)))

    return {**tabular(), "loss_fn": loss}


class WritesItself(nn.Module):
    """Draws its scale anew in training: every process has another."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.linear.bias += 1e-3 * torch.randn(3)
        return self.linear(x)


def writes_itself() -> Given:
    torch.manual_seed(0)
    return given(WritesItself(), tabular()["batches"], of_classes)


# Code that is run otherwise.


class OtherwiseCompiled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.linear(x)
        return out * 1.01 if torch.compiler.is_compiling() else out


def otherwise_compiled() -> Given:
    torch.manual_seed(0)
    return given(OtherwiseCompiled(), tabular()["batches"], of_classes)


class OtherwiseAttended(SmallGPT):
    """Another scale where attention is not computed by plain mathematics."""

    def forward(self, ids: Tensor) -> Tensor:
        scores = super().forward(ids)
        return scores if torch.backends.cuda.flash_sdp_enabled() else scores * 1.02


def otherwise_attended() -> Given:
    torch.manual_seed(0)
    return given(OtherwiseAttended(), list(sentences()), next_token)


# Learning rates.


def with_rate(family: Given, rate: float) -> Given:
    for group in family["optimizer"].param_groups:
        group["lr"] = rate
    return family


def of_unstable_seeds() -> Given:
    """A deep net without normalisation whose first weights decide whether it learns."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(2, 3), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Linear(3, 3), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(3, 2))
    chance = torch.Generator().manual_seed(0)
    rows = [torch.randn(64, 2, generator=chance) for _ in range(4)]
    return given(model, [(x, (x[:, 0] > 0).long()) for x in rows], of_classes, rate=3e-2)


# Data.


class Rows(torch.utils.data.Dataset[Any]):
    """Rows of ids, or of features with a class."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Any:
        return self.rows[place]


def token_rows(lengths: list[int]) -> Rows:
    chance = torch.Generator().manual_seed(1)
    return Rows([{"input_ids": torch.randint(2, WORDS, (length,), generator=chance)} for length in lengths])
