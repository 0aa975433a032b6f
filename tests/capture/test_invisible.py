"""Invisible: losses, gradients, weights and random states of a healthy run are the same to the last bit under watch."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils.data import dataloader

import steadytrain
from fingerprint import random_digest, seed
from scripts import Ended, Started, bare, recorded, watched
from steadytrain.capture.hooks import patches
from steadytrain.core.incident import Policy
from watching import watching

SCRIPT = str(Path(__file__).parents[1] / "small_gpt.py")
STEPS = list(range(1, 7))


@dataclass(frozen=True)
class Case:
    """Variants of ``small_gpt.py`` that are trained one after the other in one process."""

    variants: tuple[str, ...]
    policies: tuple[Policy, ...] = ("stop",)
    streams: tuple[str, ...] = ("main",)
    told: str = "6 steps seen"

    def __str__(self) -> str:
        return "+".join(self.variants)


CASES = [
    Case(("eager", "accumulation", "autocast"), ("observe", "stop"), streams=("main", "optimizer-2", "optimizer-3")),
    pytest.param(Case(("model-first",), ("observe", "stop")), marks=pytest.mark.long, id="model-first"),
    pytest.param(Case(("model-last",)), marks=pytest.mark.long, id="model-last"),
    pytest.param(Case(("method-first",)), marks=pytest.mark.long, id="method-first"),
    pytest.param(Case(("method-last",)), marks=pytest.mark.long, id="method-last"),
    pytest.param(Case(("loss", "blocks"), streams=("main", "optimizer-2")), marks=pytest.mark.long, id="loss+blocks"),
    pytest.param(Case(("step",), ("observe", "stop")), marks=pytest.mark.long, id="step"),
    pytest.param(
        Case(("optimizer",), streams=(), told="no torch.optim optimizer made this update"),
        marks=pytest.mark.long,
        id="optimizer",
    ),
    pytest.param(
        Case(("eager", "model-first", "eager"), streams=("main", "optimizer-2", "optimizer-3")),
        marks=pytest.mark.long,
        id="eager+model-first+eager",
    ),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Kernels that one run has built, the others load: what is compared is which ones."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.mktemp("kernels")), "PYTHONWARNINGS": "ignore"}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_run_is_the_same_bit_for_bit_with_as_many_graphs(
    case: Case, compiled: dict[str, str], tmp_path: Path
) -> None:
    plain, ours_by_policy = side_by_side(case, compiled, tmp_path)
    assert plain.status == 0, plain.err
    for policy, ours in ours_by_policy.items():
        assert ours.out == plain.out
        assert ours.status == 0
        assert timeless(ours.own) == timeless(plain.own)
        assert case.told in ours.told
        assert not ours.warnings
        if case.streams:
            run = recorded(tmp_path / policy)
            assert tuple(run.streams()) == case.streams
            assert [run.scalars(stream).steps.tolist() for stream in case.streams] == [STEPS] * len(case.streams)
            assert not run.scalars().skipped.any()
            assert run.scalars().present["loss"].all()


def test_a_watch_draws_no_random_number_and_leaves_nothing_behind(tmp_path: Path) -> None:
    def places() -> list[Any]:
        return [
            torch.autograd._engine_run_backward,
            torch.optim.Optimizer.__init__,
            dataloader._BaseDataLoaderIter.__next__,
            torch.amp.GradScaler.step,
            torch.amp.GradScaler.scale,
            torch.nn.utils.clip_grad_norm_,
            torch.nn.utils.clip_grad.clip_grad_norm_,
            torch.compile,
            dict(_global_optimizer_pre_hooks),
            dict(_global_optimizer_post_hooks),
        ]

    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    before, at_start = places(), random_digest()
    with watching(tmp_path / "run", "stop"):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        inputs = torch.arange(12.0).view(4, 3)
        for _ in range(40):
            model(inputs).mean().backward()
            optimizer.step()
        assert places() != before
    assert random_digest() == at_start
    assert places() == before
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._forward_hooks_with_kwargs
        assert not module._forward_hooks_always_called


def test_random_numbers_of_all_kinds_go_on_as_they_would(tmp_path: Path) -> None:
    def draw() -> list[Any]:
        seed(1)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        drawn: list[Any] = []
        for _ in range(5):
            drawn += [random.random(), np.random.rand(), torch.rand(()).item()]
            model(torch.randn(4, 3)).mean().backward()
            drawn += [random.gauss(0, 1), np.random.randn(), torch.randn(()).item()]
            optimizer.step()
        return drawn

    plain = draw()
    with watching(tmp_path / "run", "stop"):
        ours = draw()
    assert ours == plain


def side_by_side(case: Case, environment: dict[str, str], folder: Path) -> tuple[Ended, dict[Policy, Ended]]:
    """Bare, which builds the kernels, then one run a policy, each in a folder of its own."""
    plain = Started(bare(SCRIPT, *case.variants), folder, environment=environment).end()
    started = {}
    for policy in case.policies:
        (folder / policy).mkdir()
        command = watched(SCRIPT, *case.variants, policy=policy)
        started[policy] = Started(command, folder / policy, environment=environment)
    return plain, {policy: process.end() for policy, process in started.items()}


def timeless(err: str) -> str:
    """What torch logs, without times and process numbers."""
    return re.sub(r"^([VIWE])\d{4} [\d:.]+ \d+ ", r"\1 ", err, flags=re.MULTILINE)


TRACED = {"capture.hooks.loss_calls", "capture.hooks.module_hooks", "capture.tensors.in_graph"}
"""Files that torch.compile may trace through."""

BEFORE_AND_AFTER = {
    *("capture.hooks.launch", "capture.hooks.import_hook", "capture.hooks.last_signals", "capture.hooks.seeding")
}
"""What runs when no graph does: at the start and at the end."""

CHANGES_OF_A_LIVE_STEP = {"trial_runs.changes", "trial_runs.function_stand_ins", "trial_runs.launched_script"}
"""What interventions of the guard share with trials."""


def test_every_file_that_runs_in_a_step_is_kept_from_the_compiler() -> None:
    package = Path(steadytrain.__file__).parent
    files = [path for room in ("capture", "detection", "guard") for path in (package / room).rglob("*.py")]
    found = {".".join(path.relative_to(package).with_suffix("").parts) for path in files if path.stem != "__init__"}
    skipped = {
        name: {one for one in found if f"{one}.".startswith(f"{name}.")} for name in patches._SKIPPED_BY_COMPILER
    }
    assert found - set().union(*skipped.values()) == TRACED | BEFORE_AND_AFTER
    elsewhere = {name for name, files in skipped.items() if not files}
    assert elsewhere == {"core.torch_names", "core.torch_private", "exporters", "integrations"} | CHANGES_OF_A_LIVE_STEP
    assert all(find_spec(f"steadytrain.{name}") for name in elsewhere)
