"""Each check fails a model for the right reason, and lets a healthy look-alike through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from healthy_models import (  # noqa: E402
    LENGTH,
    WORDS,
    Given,
    SmallGPT,
    binary,
    given,
    gpt2,
    images,
    lora,
    next_token,
    of_classes,
    recurrent,
    regression,
    residual_net,
    sentences,
    small_gpt,
    tabular,
    vision_transformer,
    with_padding,
)
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from replaying import plain_process  # noqa: E402
from steadytrain.preflight_runs.in_code import check  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
Case = tuple[str, Callable[[], Given], str]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with plain_process():
        yield


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


HEALTHY: list[Case] = [
    ("causality", recurrent, "no prediction"),
    ("packed-document-leak", packed_apart, "do not see each other"),
    ("label-alignment", hidden_loss(1), "at shift 1"),
    ("signal-propagation", deep(1.0), "layers"),
    ("accumulation-equivalence", accumulated_right, "give the gradient"),
    ("eval-determinism", drops_in_training, "last bit"),
    ("weight-decay-groups", groups(0.1, 0.0), "weight decay 0.1"),
    ("tied-embeddings", small_gpt, "are one tensor"),
    ("batch-norm-rows", residual_net, "16 rows"),
    ("batch-leak", vision_transformer, "no row"),
    ("loss-misuse", with_loss(tabular, log_softmax_then_nll), "gets what it takes"),
    ("loss-misuse", binary, "gets what it takes"),
    ("loss-misuse", regression, "gets what it takes"),
    ("gradient-coverage", lora, "28 are frozen"),
    ("attention-entropy", small_gpt, "the lowest"),
    ("dead-units-at-start", tabular, "at most"),
    ("padding-invariance", lambda: given(gpt2(), with_padding()), "on the right"),
]

SICK: list[Case] = [
    ("initial-loss", loud_embedding, "far too high"),
    ("overfit-one-batch", same_inputs, "the loss of 4 rows"),
    ("overfit-one-batch", graph_cut, "does not depend on any parameter"),
    ("batch-leak", rows_swapped, "a row depends on the others"),
    ("causality", sees_ahead, "see up to"),
    ("causality-by-change", sees_ahead, "change by"),
    ("causality-by-change", chooses_by_what_comes, "change by"),
    ("packed-document-leak", packed_together, "sees the one before"),
    ("input-independence", without_inputs, "no difference|labels are seen"),
    ("input-independence", sees_labels, "the labels are seen"),
    ("label-permutation", sees_labels, "the labels are seen"),
    ("label-alignment", labels_shifted_twice, "shifted more than once"),
    ("label-alignment", labels_not_shifted, "the inputs themselves"),
    ("label-alignment", hidden_loss(2), "shifted more than once"),
    ("signal-propagation", deep(0.1), "layers"),
    ("dead-units-at-start", dead, "are off"),
    ("attention-entropy", loud_queries, "saturated"),
    ("gradient-coverage", all_frozen, "nothing is trained"),
    ("gradient-coverage", head_forgotten, "2 parameters want gradients and are in no optimizer"),
    ("gradient-coverage", detached, "body.weight"),
    ("gradient-coverage", graph_cut, "graph was cut"),
    ("gradient-coverage", lora_on_zeros, "all zero"),
    ("gradient-coverage", uninitialised, "never initialised: 3.weight"),
    ("gradient-coverage", twice_held, "in two groups"),
    ("weight-decay-groups", groups(0.0, 0.1), "exchanged"),
    ("weight-decay-groups", groups(0.5, 0.0, 0.2), "10% of each weight"),
    ("accumulation-equivalence", accumulated, "differs from that of the whole batch"),
    ("order-invariance", place_matters, "turned round"),
    ("tied-embeddings", copied_embedding, "two tensors"),
    ("tied-embeddings", says_tied, "the configuration ties"),
    ("batch-norm-rows", single_rows, "a single row"),
    ("eval-determinism", drops_always, "differ by"),
    ("padding-invariance", reads_padding, "outputs at real tokens change"),
    ("padding-invariance", padded_left, "on the left"),
    ("batch-size-invariance", squeezes, "alone"),
    ("loss-misuse", with_loss(tabular, double_softmax), "softmax of it again"),
    ("loss-misuse", with_loss(tabular, likelihood_of_logits), "logits, not log-probabilities"),
    ("loss-misuse", with_loss(binary, sigmoid_twice), "sigmoid of it again"),
    ("loss-misuse", with_loss(binary, softmax_of_one), "always 1"),
    ("loss-misuse", with_loss(regression, spread), "each is compared with all"),
    ("loss-misuse", with_loss(regression, spread_by_hand), "each is compared with all"),
]

ODD: list[Case] = [
    ("batch-norm-rows", two_rows, "2 rows"),
    ("gradient-coverage", backbone_left_out, "backbone"),
    ("loss-misuse", with_loss(tabular, log_of_softmax), "logarithm"),
    ("loss-misuse", with_loss(tabular, summed), "sums over the batch"),
    ("weight-decay-groups", groups(0.1, 0.1), "norms and biases"),
    ("weight-decay-groups", groups(0.01, 0.01, kind=torch.optim.Adam), "inside the moments"),
]


def name_of(case: Any) -> str:
    return getattr(case, "__name__", "").replace("<lambda>", "") if callable(case) else str(case)


def expect(case: Case, status: str) -> None:
    name, make, words = case
    outcome = check(name, **make())
    assert outcome.status == status, outcome
    import re

    assert re.search(words, outcome.message), outcome
    if status in ("fail", "warn"):
        assert outcome.meaning
        assert outcome.next


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: f"{case[0]}-{name_of(case[1])}")
def test_a_healthy_look_alike_passes(case: Case) -> None:
    expect(case, "pass")


@pytest.mark.parametrize("case", SICK, ids=lambda case: f"{case[0]}-{name_of(case[1])}")
def test_it_fails_for_the_right_reason(case: Case) -> None:
    expect(case, "fail")


@pytest.mark.parametrize("case", ODD, ids=lambda case: f"{case[0]}-{name_of(case[1])}")
def test_what_is_unusual_is_a_warning(case: Case) -> None:
    expect(case, "warn")
