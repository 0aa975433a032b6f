"""Modules that a script calls in every step, and that no backward reaches: what is said of them by step 8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from watching import watching

Cut = Callable[[nn.Module, Tensor], Tensor]


class Model(nn.Module):
    def __init__(self, cut: Cut) -> None:
        super().__init__()
        self.encoder, self.beside = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(8, 16)
        self.head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
        self.cut = cut

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.cut(self.encoder, x) + self.beside(x))
        return scores


class Inside(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(super().forward(x).detach().numpy())


def train(
    model: nn.Module, folder: Path, *, steps: int = 8, each: Callable[[int], None] = lambda at: None
) -> list[str]:
    """What is said of frozen parameters: severity and message."""
    torch.manual_seed(0)
    with watching(folder, "observe") as watcher:
        optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=1e-3)
        for at in range(1, steps + 1):
            each(at)
            x = torch.randn(24, 8)
            optimizer.zero_grad()
            F.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
            optimizer.step()
    assert not any(module._forward_hooks for name, module in model.named_modules() if name.startswith("encoder"))
    return [f"{one.severity}: {one.message}" for one in watcher.symptoms if one.name == "frozen-parameters"]


def under_no_grad(encoder: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        made: Tensor = encoder(x)
        return made


def checkpointed(encoder: nn.Module, x: Tensor) -> Tensor:
    """Its input needs no gradient, so a reentrant checkpoint makes no graph."""
    made: Tensor = checkpoint(encoder, x, use_reentrant=True)
    return made


CUTS: dict[str, tuple[Cut, str]] = {
    "detached": (lambda encoder, x: encoder(x).detach(), "its output is detached or not used"),
    "checkpoint": (
        checkpointed,
        "it runs in a reentrant checkpoint of which no input needs a gradient (use_reentrant=False)",
    ),
    "data": (lambda encoder, x: encoder(x).data, "its output is detached or not used"),
    "not used": (lambda encoder, x: x.new_ones(encoder(x).shape), "its output is detached or not used"),
    "no_grad": (under_no_grad, "it runs under no_grad"),
}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("name", CUTS)
def test_a_cut_encoder_is_named_by_step_8(name: str, tmp_path: Path) -> None:
    cut, said = CUTS[name]
    assert train(Model(cut), tmp_path) == [
        f"warning: encoder is called in every step and never gets a gradient: {said}"
    ]


class Blocks(nn.Module):
    """Its list of blocks is never called itself; each block runs in a checkpoint behind a frozen embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16).requires_grad_(False)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(2))
        self.head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=True)
        scores: Tensor = self.head(h + self.body(x))
        return scores


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_blocks_of_a_list_are_named(tmp_path: Path) -> None:
    (said,) = train(Blocks(), tmp_path)
    assert said.startswith(
        "warning: blocks.0 (and 1 more) is called in every step and never gets a gradient: it runs in"
    )


def test_a_module_that_cuts_the_graph_itself(tmp_path: Path) -> None:
    model = Model(lambda encoder, x: encoder(x))
    model.encoder = nn.Sequential(Inside(8, 16))
    (said,) = train(model, tmp_path)
    assert said == "warning: encoder is called in every step and never gets a gradient: it detaches its output itself"


def test_it_is_said_once_and_the_hooks_are_gone(tmp_path: Path) -> None:
    assert len(train(Model(CUTS["detached"][0]), tmp_path, steps=24)) == 1


def test_a_short_run_leaves_no_hook(tmp_path: Path) -> None:
    assert train(Model(CUTS["detached"][0]), tmp_path, steps=3) == []


def frozen(model: Model) -> None:
    model.encoder.requires_grad_(False)


def evaluated(model: Model) -> None:
    model.encoder.eval()


@pytest.mark.parametrize("prepare", [frozen, evaluated])
def test_what_is_frozen_on_purpose(prepare: Callable[[Model], None], tmp_path: Path) -> None:
    model = Model(CUTS["no_grad"][0])
    prepare(model)
    assert train(model, tmp_path) == []


def test_a_part_that_has_its_turn_in_some_steps(tmp_path: Path) -> None:
    turns: list[int] = []

    def sometimes(encoder: nn.Module, x: Tensor) -> Tensor:
        return encoder(x) if turns[-1] % 6 == 0 else x.new_zeros(16)

    assert train(Model(sometimes), tmp_path, each=turns.append) == []


def test_a_target_that_no_optimizer_holds(tmp_path: Path) -> None:
    model = Model(lambda encoder, x: encoder(x))
    target = nn.Linear(8, 16)
    model.cut = lambda encoder, x: encoder(x) + target(x).detach()
    assert train(model, tmp_path) == []


class TwoOutputs(nn.Module):
    """Returns what a loss uses, and the output of a part that none does; has a part that it never calls."""

    def __init__(self, spare: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.scores, self.states = nn.Linear(8, 16), nn.Linear(16, 3), nn.Linear(16, 8)
        self.first_norm = spare if spare is not None else nn.Identity()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x).relu()
        return self.scores(h), self.states(h)


def two_outputs(model: nn.Module, folder: Path, steps: int = 20) -> list[str]:
    torch.manual_seed(0)
    with watching(folder, "observe") as watcher:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(steps):
            x = torch.randn(24, 8)
            optimizer.zero_grad()
            scores, _ = model(x)
            F.cross_entropy(scores, x[:, :3].argmax(1)).backward()
            optimizer.step()
    assert not any(module._forward_hooks for module in model.modules())
    return [f"{one.severity}: {one.message}" for one in watcher.symptoms if one.name == "frozen-parameters"]


def test_an_output_that_the_model_returns_and_no_loss_uses_is_a_note(tmp_path: Path) -> None:
    (said,) = two_outputs(TwoOutputs(), tmp_path / "run")
    assert said.startswith("note: states is called in every step")
    assert said.endswith("the model returns its output, and no loss uses it")


def test_a_part_that_its_class_makes_and_never_calls_is_a_note(tmp_path: Path) -> None:
    found = two_outputs(TwoOutputs(nn.LayerNorm(8)), tmp_path / "run")
    assert any(one.startswith("note: ") and one.endswith("first_norm is made and never called") for one in found)
    assert not any(one.startswith("warning") for one in found)


def test_a_head_under_a_name_that_the_model_does_not_know_is_a_warning(tmp_path: Path) -> None:
    model = TwoOutputs()
    model.classifier = nn.Linear(16, 3)
    found = two_outputs(model, tmp_path / "run")
    assert any(one.startswith("warning: 4 parameters (states.weight first)") for one in found)
