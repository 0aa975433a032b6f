"""Loops whose look concerns losses, labels, ties, modes and schedules."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from looked_loops import (
    LENGTH,
    TOKENS,
    Step,
    adam,
    batch,
    decoder_forgotten,
    first_batch_each_time,
    head_made_after_the_optimizer,
    layers_in_a,
    never_cleared,
    one_batch_kept,
    seed_in_the_loop,
    small,
    sorted_by_names,
    update,
)
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, StepLR
from torch.optim.swa_utils import SWALR
from torch.utils.data import DataLoader, TensorDataset

from parameters import long

# Losses.


def loss_of(loss: Callable[[Tensor, Tensor], Tensor], *, units: int = 3) -> Callable[[], Step]:
    def begin() -> Step:
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, units))
        optimizer = adam(model)

        def step(at: int) -> None:
            x, y = batch()
            update(optimizer, loss(model(x), y))

        return step

    return begin


def pairs(scores: Tensor, labels: Tensor) -> Tensor:
    """Every prediction with every target, as quantiles are trained."""
    return F.smooth_l1_loss(scores[:, :, None].expand(-1, 3, 3), labels[:, None, None].float().expand(-1, 3, 3))


MISUSED = {
    "softmax twice": loss_of(lambda scores, y: F.cross_entropy(scores.softmax(1), y)),
    "softmax twice, targets as probabilities": loss_of(
        lambda scores, y: F.cross_entropy(scores.softmax(1), F.one_hot(y, 3).float())
    ),
    "sigmoid before softmax": loss_of(lambda scores, y: F.cross_entropy(scores.sigmoid(), y)),
    "sigmoid twice": loss_of(
        lambda scores, y: F.binary_cross_entropy_with_logits(scores.sigmoid(), y[:, None].gt(0).float()), units=1
    ),
    "scores": loss_of(F.nll_loss),
    "probabilities": loss_of(lambda scores, y: F.nll_loss(scores.softmax(1), y)),
    "one unit": loss_of(lambda scores, y: F.binary_cross_entropy(scores.softmax(1), y[:, None].gt(0).float()), units=1),
}
WELL_USED = {
    "cross entropy": loss_of(F.cross_entropy),
    "log softmax": loss_of(lambda scores, y: F.nll_loss(scores.log_softmax(1), y)),
    "log of softmax": loss_of(lambda scores, y: F.nll_loss((scores.softmax(1) + 1e-9).log(), y)),
    "binary": loss_of(lambda s, y: F.binary_cross_entropy(s.sigmoid(), y[:, None].gt(0).float()), units=1),
    "distillation": loss_of(
        lambda scores, y: (
            F.kl_div(scores.log_softmax(1), scores.detach().softmax(1), reduction="batchmean")
            + F.cross_entropy(scores / 2.0, y)
        )
    ),
    "quantiles": loss_of(pairs),
}
SPREAD = {
    "mse": loss_of(lambda scores, y: F.mse_loss(scores, y.float()), units=1),
    "squares": loss_of(lambda scores, y: ((scores - y.float()) ** 2).mean(), units=1),
    "a batch of one sequence": loss_of(lambda scores, y: F.mse_loss(scores[None], y[None].float()), units=1),
    "l1": loss_of(lambda scores, y: F.l1_loss(scores.squeeze(-1), y[:, None].float()), units=1),
}
NOT_SPREAD = {
    "column": loss_of(lambda scores, y: F.mse_loss(scores, y[:, None].float()), units=1),
    "one sequence": loss_of(lambda scores, y: F.mse_loss(scores[None], y[None, :, None].float()), units=1),
    "row": loss_of(lambda scores, y: ((scores.squeeze(-1) - y.float()) ** 2).mean(), units=1),
    "pairs on purpose": loss_of(lambda s, y: (s.squeeze(-1)[:, None] - y.float()[None]).abs().mean(), units=1),
    "contrast": loss_of(lambda s, y: (s[:, :1] - s[:, 0]).square().mean() + F.cross_entropy(s, y)),
    "quantiles": loss_of(pairs),
}


# Labels.


class Reader(nn.Module):
    def __init__(self, *, causal: bool = True, by_hand: bool = False) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(TOKENS, 16), nn.Embedding(LENGTH, 16)
        self.mix, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, TOKENS)
        self.causal, self.by_hand = causal, by_hand

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) + self.places.weight[: ids.shape[1]]
        q, k, v = self.mix(x).chunk(3, -1)
        if self.by_hand:
            scores = q @ k.mT / 4
            if self.causal:
                scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), float("-inf"))
            x = x + self.out(scores.softmax(-1) @ v)
        else:
            q, k, v = (one[:, None] for one in (q, k, v))
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)[:, 0])
        logits: Tensor = self.head(x)
        return logits


def text(rows: int = 8) -> Tensor:
    return torch.randint(1, TOKENS, (rows, LENGTH))


def reads(labels: Callable[[Tensor], tuple[Tensor, Tensor]], **how: bool) -> Callable[[], Step]:
    """A model that is given, and trained on, what ``labels`` makes of a text: inputs and labels, -100 left out."""

    def begin() -> Step:
        model = Reader(**how)
        optimizer = adam(model)

        def step(at: int) -> None:
            ids, wanted = labels(text())
            update(optimizer, F.cross_entropy(model(ids).flatten(0, 1), wanted.flatten()))

        return step

    return begin


def next_ones(ids: Tensor) -> tuple[Tensor, Tensor]:
    return ids[:, :-1], ids[:, 1:]


def twice_shifted(ids: Tensor) -> tuple[Tensor, Tensor]:
    return ids[:, :-2], ids[:, 2:]


def same(ids: Tensor) -> tuple[Tensor, Tensor]:
    return ids, ids


def hidden(ids: Tensor) -> tuple[Tensor, Tensor]:
    here = torch.rand(ids.shape) < 0.3
    return torch.where(here, 0, ids), torch.where(here, ids, -100)


def filled_up(ids: Tensor, *, ignored: bool = False) -> tuple[Tensor, Tensor]:
    lengths = torch.randint(4, LENGTH - 2, (ids.shape[0], 1))
    filled = torch.arange(LENGTH) >= lengths
    ids = torch.where(filled, 0, ids)
    wanted = torch.where(filled, -100, ids) if ignored else ids
    return ids[:, :-1], wanted[:, 1:]


def ends_count(ids: Tensor) -> tuple[Tensor, Tensor]:
    """The id that fills up ends a text as well, and is a label there once."""
    given, wanted = filled_up(ids)
    return given, torch.where((given == 0) & (wanted == 0), -100, wanted)


def answers_cut_off(ids: Tensor) -> tuple[Tensor, Tensor]:
    given, wanted = next_ones(ids)
    return given, wanted.masked_fill(torch.arange(len(ids))[:, None] % 2 == 0, -100)


def with_a_head(tie: Callable[[Reader], None]) -> Callable[[], Step]:
    """A reader whose head ``tie`` makes of its table."""

    def begin() -> Step:
        model = Reader()
        tie(model)
        optimizer = adam(model)

        def step(at: int) -> None:
            ids, wanted = next_ones(text())
            update(optimizer, F.cross_entropy(model(ids).flatten(0, 1), wanted.flatten()))

        return step

    return begin


def copied(model: Reader) -> None:
    model.head.weight = nn.Parameter(model.table.weight.detach().clone())


def tied(model: Reader) -> None:
    model.head.weight = model.table.weight


def both_at_zero(model: Reader) -> None:
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.table.weight)


# Modes.


def left_in_evaluation() -> Step:
    model = small()
    optimizer = adam(model)

    def step(at: int) -> None:
        update(optimizer, F.cross_entropy(model(batch()[0]), batch()[1]))
        if at == 4:
            model.eval()

    return step


def back_to_training() -> Step:
    model = small()
    optimizer = adam(model)

    def step(at: int) -> None:
        model.train()
        update(optimizer, F.cross_entropy(model(batch()[0]), batch()[1]))
        model.eval()
        with torch.no_grad():
            model(batch()[0])

    return step


def evaluation_from_the_start() -> Step:
    model = small().eval()
    optimizer = adam(model)
    return lambda at: update(optimizer, F.cross_entropy(model(batch()[0]), batch()[1]))


def normalisation_stays() -> Step:
    model = small()
    optimizer = adam(model)

    def step(at: int) -> None:
        model.train()
        if at > 4:
            model[1].eval()
        update(optimizer, F.cross_entropy(model(batch()[0]), batch()[1]))

    return step


# Resumes.


def resumed(*, moments: bool, schedule: bool) -> Callable[[], Step]:
    """A training that goes on after twenty steps, with the states that were loaded."""

    def begin() -> Step:
        model = small()
        before, optimizer = adam(model), adam(model)
        first = torch.optim.lr_scheduler.StepLR(before, 100)
        first.last_epoch = 20
        second = torch.optim.lr_scheduler.StepLR(optimizer, 100)
        if schedule:
            second.load_state_dict(first.state_dict())
        if moments:
            for one in model.parameters():
                held = {"exp_avg": torch.zeros_like(one), "exp_avg_sq": torch.ones_like(one)}
                optimizer.state[one] = {"step": torch.tensor(20.0), **held}

        def step(at: int) -> None:
            update(optimizer, F.cross_entropy(model(batch()[0]), batch()[1]))
            second.step()

        return step

    return begin


def step_decay(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return StepLR(optimizer, 1, 0.9)


def weight_average(optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Its turn comes in the last quarter of a training."""
    return SWALR(optimizer, swa_lr=1e-4)


def scheduled(*, every: int, kind: Callable[[torch.optim.Optimizer], LRScheduler] = step_decay) -> Callable[[], Step]:
    """Four steps are one pass over the data, with an evaluation after each. ``every`` 0: never stepped."""

    def begin() -> Step:
        model = small()
        optimizer = adam(model)
        schedule = kind(optimizer)
        x, y = torch.randn(96, 8), torch.randint(3, (96,))
        training, few = DataLoader(TensorDataset(x, y), 24), DataLoader(TensorDataset(*batch()), 24)
        batches = (each for _ in itertools.count() for each in training)

        def step(at: int) -> None:
            x, y = next(batches)
            update(optimizer, F.cross_entropy(model(x), y))
            for _ in few:
                pass
            if every and at % every == 0:
                schedule.step()

        return step

    return begin


class ShiftingReader(Reader):
    """Given labels too, it makes the loss itself and shifts the labels for that, as causal models of libraries do."""

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> Tensor:
        logits = super().forward(ids)
        if labels is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), F.pad(labels, (0, 1), value=-100)[:, 1:].flatten())


def given_labels(labels: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Callable[[], Step]:
    """A model that shifts, given what ``labels`` makes of a text."""

    def begin() -> Step:
        model = ShiftingReader()
        optimizer = adam(model)

        def step(at: int) -> None:
            ids, wanted = labels(text())
            update(optimizer, model(ids, labels=wanted))

        return step

    return begin


ALIKE = ("softmax twice, targets as probabilities", "sigmoid before softmax", "probabilities", "squares", "l1")
"""Beside a loss that is misused or spread in the same way."""


SICK = [
    (scheduled(every=0), "idle-schedule", "warning"),
    (head_made_after_the_optimizer, "parameters-outside-optimizer", "warning"),
    (decoder_forgotten, "parameters-outside-optimizer", "warning"),
    (partial(sorted_by_names, complete=False), "parameters-outside-optimizer", "warning"),
    (layers_in_a("list"), "parameters-outside-optimizer", "warning"),
    (layers_in_a("dictionary"), "parameters-outside-optimizer", "warning"),
    (never_cleared, "gradients-carried-over", "warning"),
    (first_batch_each_time, "repeated-batch", "warning"),
    (one_batch_kept, "repeated-batch", "note"),
    (seed_in_the_loop, "repeated-batch", "note"),
    *((begin, "misused-loss", "warning") for name, begin in MISUSED.items() if name not in ALIKE),
    *((begin, "broadcast-loss", "warning") for name, begin in SPREAD.items() if name not in ALIKE),
    *(long(MISUSED[name], "misused-loss", "warning") for name in MISUSED if name in ALIKE),
    *(long(SPREAD[name], "broadcast-loss", "warning") for name in SPREAD if name in ALIKE),
    (reads(same), "misplaced-labels", "warning"),
    (reads(same, causal=False), "misplaced-labels", "note"),
    (given_labels(next_ones), "misplaced-labels", "warning"),
    (reads(twice_shifted, by_hand=True), "misplaced-labels", "warning"),
    (reads(next_ones, causal=False), "visible-labels", "warning"),
    long(reads(next_ones, causal=False, by_hand=True), "visible-labels", "warning"),
    (reads(filled_up), "supervised-padding", "warning"),
    (reads(answers_cut_off), "rows-without-labels", "warning"),
    (with_a_head(copied), "untied-weights", "warning"),
    (left_in_evaluation, "left-in-evaluation", "warning"),
    (resumed(moments=False, schedule=True), "incomplete-resume", "warning"),
    (resumed(moments=True, schedule=False), "incomplete-resume", "note"),
]
