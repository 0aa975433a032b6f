"""Loops whose look concerns optimizers, gradients and inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from steadytrain.core.model import Severity
from steadytrain.detectors import ScriptRule
from steadytrain.grouping.catalog import declared
from watching import watching

STEPS = 16
TOKENS, LENGTH = 20, 12

Step = Callable[[int], None]
Found = dict[str, Severity]


def found(folder: Path, begin: Callable[[], Step], *, steps: int = STEPS) -> Found:
    """What rules of the script say after ``steps`` steps, by name, with the severity."""
    torch.manual_seed(0)
    with watching(folder, "observe") as watcher:
        step = begin()
        for at in range(1, steps + 1):
            step(at)
    return {one.name: one.severity for one in watcher.symptoms if issubclass(declared(one.name), ScriptRule)}


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))


def batch() -> tuple[Tensor, Tensor]:
    x = torch.randn(24, 8)
    return x, x[:, :3].argmax(1)


def update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def adam(*models: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam([one for model in models for one in model.parameters()], lr=1e-3)


# Parameters.


def head_made_after_the_optimizer() -> Step:
    model = small()
    optimizer = adam(model)
    model[4] = nn.Linear(16, 3)
    return lambda at: update(optimizer, F.cross_entropy(model(batch()[0]), batch()[1]))


def sorted_by_names(*, complete: bool) -> Step:
    """Groups with and without weight decay, chosen by the ends of names: `weight_hh_l0` ends with neither."""
    model, head = nn.GRU(8, 6, batch_first=True), nn.Linear(6, 3)
    named = [*model.named_parameters(), *head.named_parameters()]
    decayed = [one for name, one in named if name.endswith("weight") or (complete and "weight_" in name)]
    plain = [one for name, one in named if name.endswith("bias") or (complete and "bias_" in name)]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)

    def step(at: int) -> None:
        x = torch.randn(12, 5, 8)
        update(optimizer, nn.functional.cross_entropy(head(model(x)[0][:, -1]), x[:, 0, :3].argmax(1)))

    return step


def head_replaced(at_step: int, *, frozen: bool, given: bool) -> Callable[[], Step]:
    """A second stage with a new head, which the optimizer is ``given`` or not, and the rest ``frozen`` or not."""

    def begin() -> Step:
        model = small()
        optimizer = adam(model)

        def step(at: int) -> None:
            if at == at_step:
                model.requires_grad_(not frozen)
                model[4] = nn.Linear(16, 3)
                if given:
                    optimizer.add_param_group({"params": model[4].parameters()})
            update(optimizer, F.cross_entropy(model(batch()[0]), batch()[1]))

        return step

    return begin


def unfrozen(at_step: int, *, given: bool, apart: bool = False) -> Callable[[], Step]:
    """A second stage with everything unfrozen, which the optimizer of the head is ``given`` or not. ``apart``: the
    script calls the body and the head one after the other, and no module holds both."""

    def begin() -> Step:
        model = small()
        model[:4].requires_grad_(False)
        body, head = model[:4], model[4]
        optimizer = adam(head)

        def step(at: int) -> None:
            if at == at_step:
                model.requires_grad_(True)
                if given:
                    optimizer.add_param_group({"params": model[:4].parameters()})
            scores = head(body(batch()[0])) if apart else model(batch()[0])
            update(optimizer, F.cross_entropy(scores, batch()[1]))

        return step

    return begin


def model_replaced(at_step: int, *, given: bool) -> Callable[[], Step]:
    """A second stage with a new model, which clears its own gradients. The optimizer holds it, or still the old one."""

    def begin() -> Step:
        models = [small()]
        optimizers = [adam(models[0])]

        def step(at: int) -> None:
            if at == at_step:
                models[0] = small()
                optimizers[0] = adam(models[0]) if given else optimizers[0]
            models[0].zero_grad()
            F.cross_entropy(models[0](batch()[0]), batch()[1]).backward()
            optimizers[0].step()

        return step

    return begin


def experts_now_and_then() -> Step:
    model, experts = small(), nn.ModuleList(nn.Linear(3, 3) for _ in range(4))
    optimizer = adam(nn.ModuleList([model, experts]))

    def step(at: int) -> None:
        update(optimizer, F.cross_entropy(experts[at // 8 % 4](model(batch()[0])), batch()[1]))

    return step


def decoder_forgotten() -> Step:
    encoder, decoder = nn.Linear(8, 32), nn.Linear(32, 3)
    model = nn.Sequential(encoder, nn.ReLU(), decoder)
    optimizer = adam(encoder)
    return lambda at: update(optimizer, F.cross_entropy(model(batch()[0]), batch()[1]))


def features_stay() -> Step:
    model = small()
    optimizer = adam(model[4])
    return lambda at: update(optimizer, F.cross_entropy(model(batch()[0]), batch()[1]))


class Plain(nn.Module):
    """Holds modules in a plain list or dictionary, which hides them from ``parameters``."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        layers = [nn.Linear(8, 8), nn.Linear(8, 8)]
        self.layers = layers if kind == "list" else {"a": layers[0], "b": layers[1]}
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers.values() if isinstance(self.layers, dict) else self.layers:
            x = torch.relu(layer(x)) + x
        out: Tensor = self.head(x)
        return out


def layers_in_a(kind: str) -> Callable[[], Step]:
    def begin() -> Step:
        model = Plain(kind)
        optimizer = adam(model)

        def step(at: int) -> None:
            x, y = batch()
            update(optimizer, F.cross_entropy(model(x), y))

        return step

    return begin


def teacher_in_a_list() -> Step:
    """A teacher in a list, so that it is not saved and not trained with the model."""
    model = small()
    model.teacher = [small()]
    optimizer = adam(model)

    def step(at: int) -> None:
        x, y = batch()
        with torch.no_grad():
            told = model.teacher[0](x).softmax(-1)
        made = model(x)
        update(optimizer, F.cross_entropy(made, y) + F.kl_div(made.log_softmax(-1), told, reduction="batchmean"))

    return step


def features_are_frozen() -> Step:
    model = small()
    model.requires_grad_(False)
    model[4].requires_grad_(True)
    optimizer = adam(model[4])
    return lambda at: update(optimizer, F.cross_entropy(model(batch()[0]), batch()[1]))


def two_that_play_against_each_other(*, mixed_up: bool = False) -> Step:
    """``mixed_up``: the optimizer of the maker got the parameters of the judge; the maker is the larger one."""
    maker = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 8)) if mixed_up else nn.Linear(4, 8)
    judge = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    of_maker, of_judge = adam(judge if mixed_up else maker), adam(judge)

    def step(at: int) -> None:
        made = maker(torch.randn(24, 4))
        said = judge(torch.cat([batch()[0], made.detach()]))
        update(of_judge, F.binary_cross_entropy_with_logits(said, torch.arange(48)[:, None].lt(24).float()))
        update(of_maker, -judge(made).mean())

    return step


def copies_in_float64() -> Step:
    """The optimizer holds copies; the script carries gradients and weights over."""
    model = small()
    copies = [one.detach().double().requires_grad_() for one in model.parameters()]
    optimizer = torch.optim.SGD(copies, lr=0.1)

    def step(at: int) -> None:
        model.zero_grad()
        F.cross_entropy(model(batch()[0]), batch()[1]).backward()
        for other, one in zip(copies, model.parameters(), strict=True):
            assert one.grad is not None
            other.grad = one.grad.double()
        optimizer.step()
        with torch.no_grad():
            for other, one in zip(copies, model.parameters(), strict=True):
                one.copy_(other)

    return step


# Gradients.


def never_cleared() -> Step:
    model = small()
    optimizer = adam(model)

    def step(at: int) -> None:
        F.cross_entropy(model(batch()[0]), batch()[1]).backward()
        optimizer.step()

    return step


def cleared_to_zeros() -> Step:
    model = small()
    optimizer = adam(model)

    def step(at: int) -> None:
        F.cross_entropy(model(batch()[0]), batch()[1]).backward()
        optimizer.step()
        model.zero_grad(set_to_none=False)

    return step


def accumulated() -> Step:
    model = small()
    optimizer = adam(model)

    def step(at: int) -> None:
        for _ in range(4):
            (F.cross_entropy(model(batch()[0]), batch()[1]) / 4).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def closure() -> Step:
    model = small()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x, y = batch()

    def evaluated() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return lambda at: optimizer.step(evaluated) and None


# Batches.


def loader(rows: int = 200, size: int = 8) -> DataLoader[tuple[Tensor, ...]]:
    x = torch.randn(rows, 8)
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=size)


def first_batch_each_time() -> Step:
    model, batches = small(), loader()
    optimizer = adam(model)

    def step(at: int) -> None:
        x, y = next(iter(batches))
        update(optimizer, F.cross_entropy(model(x), y))

    return step


def one_batch_kept() -> Step:
    model = small()
    optimizer = adam(model)
    x, y = next(iter(loader()))
    return lambda at: update(optimizer, F.cross_entropy(model(x), y))


def seed_in_the_loop() -> Step:
    model = small()
    optimizer = adam(model)

    def step(at: int) -> None:
        torch.manual_seed(1)
        x, y = batch()
        update(optimizer, F.cross_entropy(model(x), y))

    return step


def all_data_at_once() -> Step:
    model = small()
    optimizer = adam(model)
    x, y = batch()
    return lambda at: update(optimizer, F.cross_entropy(model(x), y))


def all_rows_of_the_loader() -> Step:
    model, batches = small(), loader(rows=24, size=24)
    optimizer = adam(model)

    def step(at: int) -> None:
        for x, y in batches:
            update(optimizer, F.cross_entropy(model(x), y))

    return step


def four_updates_a_batch() -> Step:
    model, batches = small(), iter(loader())
    optimizer = adam(model)
    held: list[tuple[Tensor, ...]] = []

    def step(at: int) -> None:
        if at % 4 == 1:
            held[:] = [tuple(next(batches))]
        update(optimizer, F.cross_entropy(model(held[0][0]), held[0][1]))

    return step
