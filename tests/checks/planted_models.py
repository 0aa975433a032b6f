"""Models with a planted fault, and healthy ones that look alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from healthy_models import (  # noqa: E402
    LENGTH,
    WORDS,
    Given,
    SmallGPT,
    given,
    lora,
    next_token,
    of_classes,
    sentences,
    small_gpt,
    tabular,
)
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

# -- initial loss, learning -------------------------------------------------------------------------------------------


def loud_embedding() -> Given:
    all_of = small_gpt()
    nn.init.normal_(all_of["model"].token.weight, std=1.0)
    return all_of


def same_inputs() -> Given:
    all_of = tabular()
    return {**all_of, "batches": [(torch.zeros_like(x), y) for x, y in all_of["batches"]]}


def rows_swapped() -> Given:
    """Attention over the rows of the batch: ``batch_first`` was forgotten."""
    torch.manual_seed(0)

    class Swapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(WORDS, 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0)
            self.head = nn.Linear(16, 3)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.layer(self.embedding(ids)).mean(dim=1))

    return given(Swapped(), [(ids, ids[:, 0] % 3) for ids in sentences()], of_classes)


def sees_ahead() -> Given:
    torch.manual_seed(0)
    return given(SmallGPT(causal=False), list(sentences()), next_token)


class Chooses(nn.Module):
    """Adds to each position something that was chosen by the last token: no gradient tells of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = SmallGPT()
        self.chosen = nn.Embedding(WORDS, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        with torch.no_grad():
            last = self.chosen(ids[:, -1:])
        return self.inner(ids) + last


def chooses_by_what_comes() -> Given:
    torch.manual_seed(0)
    return given(Chooses(), list(sentences()), next_token)


class Packed(SmallGPT):
    def __init__(self, *, apart: bool) -> None:
        super().__init__()
        self.apart = apart

    def forward(self, input_ids: Tensor, position_ids: Tensor, labels: Tensor) -> Any:
        x = self.token(input_ids) + self.position(position_ids)
        documents = (position_ids == 0).cumsum(1)
        seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        if self.apart:
            seen = seen & (documents[:, :, None] == documents[:, None, :])[:, None]
        for block in self.blocks:
            rows, length, width = x.shape
            split = block.qkv(block.norm1(x)).view(rows, length, 3, block.heads, width // block.heads)
            query, key, value = split.permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
            x = x + block.out(mixed.transpose(1, 2).reshape(rows, length, width))
            x = x + block.down(functional.gelu(block.up(block.norm2(x))))
        logits = self.head(self.norm(x))
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}


def packed(*, apart: bool) -> Given:
    torch.manual_seed(0)
    positions = torch.cat([torch.arange(LENGTH // 2), torch.arange(LENGTH // 2)]).expand(8, -1)
    batches = [{"input_ids": ids, "position_ids": positions, "labels": ids} for ids in sentences()]
    return given(Packed(apart=apart), batches)


def packed_together() -> Given:
    return packed(apart=False)


def packed_apart() -> Given:
    return packed(apart=True)


def without_inputs() -> Given:
    all_of = tabular()

    class Deaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = all_of["model"]
            self.offset = nn.Parameter(torch.zeros(32, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x * 0.0) + self.offset[: len(x)]

    return given(Deaf(), all_of["batches"], of_classes)


class SeesLabels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = tabular()["model"]
        self.helper = nn.Linear(3, 3)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return self.inner(x) + self.helper(functional.one_hot(labels, 3).float())


def sees_labels() -> Given:
    torch.manual_seed(0)
    return given(SeesLabels(), tabular()["batches"], lambda m, b: functional.cross_entropy(m(b[0], b[1]), b[1]))


def shifted(by: int) -> Callable[[nn.Module, Any], Tensor]:
    def loss(model: nn.Module, ids: Tensor) -> Tensor:
        logits = model(ids[:, : ids.shape[1] - by])
        return functional.cross_entropy(logits.flatten(0, 1), ids[:, by:].flatten())

    return loss


def labels_shifted_twice() -> Given:
    return {**small_gpt(), "loss_fn": shifted(2)}


def labels_not_shifted() -> Given:
    return {**small_gpt(), "loss_fn": shifted(0)}


def hidden_loss(by: int) -> Callable[[], Given]:
    """A loss that is written by hand, so that its targets are not seen."""

    class Whole(SmallGPT):
        def forward(self, ids: Tensor) -> Any:
            logits = super().forward(ids)
            chances = torch.log_softmax(logits[:, : LENGTH - by], dim=-1)
            return {"loss": -chances.gather(2, ids[:, by:, None]).mean(), "logits": logits}

    def make() -> Given:
        torch.manual_seed(0)
        return given(Whole(), [(ids,) for ids in sentences()])

    return make


# -- propagation, coverage --------------------------------------------------------------------------------------------


def deep(gain: float) -> Callable[[], Given]:
    def make() -> Given:
        torch.manual_seed(0)
        layers: list[nn.Module] = [nn.Linear(12, 32)]
        for _ in range(12):
            layers += [nn.Tanh(), nn.Linear(32, 32)]
        model = nn.Sequential(*layers, nn.Linear(32, 3))
        for layer in model:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=gain / layer.in_features**0.5)
        return given(model, tabular()["batches"], of_classes)

    return make


def dead() -> Given:
    all_of = tabular()
    nn.init.constant_(all_of["model"][0].bias, -10.0)
    return all_of


def loud_queries() -> Given:
    all_of = small_gpt()
    for block in all_of["model"].blocks:
        nn.init.normal_(block.qkv.weight, std=3.0)
    return all_of


def all_frozen() -> Given:
    all_of = tabular()
    for parameter in all_of["model"].parameters():
        parameter.requires_grad_(False)
    return all_of


def head_forgotten() -> Given:
    all_of = tabular()
    body = [p for name, p in all_of["model"].named_parameters() if name not in ("0.bias", "5.weight")]
    return {**all_of, "optimizer": torch.optim.AdamW(body, lr=1e-3)}


def backbone_left_out() -> Given:
    torch.manual_seed(0)

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = nn.Linear(12, 16), nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.relu(self.backbone(x)))

    model = Two()
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=1e-3)
    return {**given(model, tabular()["batches"], of_classes), "optimizer": optimizer}


def detached() -> Given:
    all_of = tabular()

    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(12, 16), nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.relu(self.body(x)).detach())

    return given(Cut(), all_of["batches"], of_classes)


def graph_cut() -> Given:
    return {
        **tabular(),
        "loss_fn": lambda model, batch: functional.cross_entropy(model(batch[0]).detach(), batch[1]) * torch.ones(()),
    }


def lora_on_zeros() -> Given:
    all_of = lora()
    for name, parameter in all_of["model"].named_parameters():
        if "base_layer.weight" in name:
            nn.init.zeros_(parameter)
    return all_of


def uninitialised() -> Given:
    all_of = tabular()
    with torch.no_grad():
        all_of["model"][3].weight[0, 0] = 3e20
    return all_of


def twice_held() -> Given:
    all_of = tabular()
    optimizer = all_of["optimizer"]
    optimizer.param_groups[1]["params"].append(optimizer.param_groups[0]["params"][0])
    return all_of
