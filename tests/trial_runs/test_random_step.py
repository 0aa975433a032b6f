"""A random step moves what an update moves: trained weights, and no element that is exactly 0."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from steadytrain.trial_runs.changes.perturb import RandomStep  # noqa: E402
from steadytrain.trial_runs.launched_script import Launched  # noqa: E402


def test_padding_rows_and_frozen_weights_stay() -> None:
    torch.manual_seed(0)
    table, frozen = nn.Embedding(5, 3, padding_idx=0), nn.Linear(3, 3)
    frozen.requires_grad_(False)
    model = nn.Sequential(table, frozen)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    process = Launched()
    process.roots.append(model)
    RandomStep(share=0.01, seed=1).begin(process)
    after = model.state_dict()
    assert bool((after["0.weight"][0] == 0).all())
    assert not bool((after["0.weight"][1:] == before["0.weight"][1:]).any())
    assert torch.equal(after["1.weight"], before["1.weight"])
