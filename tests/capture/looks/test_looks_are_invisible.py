"""A run whose first losses are followed back is bit-identical to a bare one, where asking for a tensor runs a hook."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from watching import watching

STEPS = 6


def trained() -> list[Tensor]:
    """Weights, statistics and random state after some steps of a model that is computed again in its backward."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 16), nn.Dropout(0.2), nn.Linear(16, 20))
    norm = nn.BatchNorm1d(20)
    optimizer = torch.optim.AdamW([*model.parameters(), *norm.parameters()], lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=STEPS + 1)
    for _ in range(STEPS):
        text = torch.randint(20, (8, 13))

        def loss_of(scores: Tensor, labels: Tensor = text[:, 1:]) -> Tensor:
            return F.cross_entropy(F.dropout(norm(scores.flatten(0, 1)), 0.1), labels.flatten())

        with torch.autograd.graph.save_on_cpu():
            scores = model(text[:, :-1])
        loss = checkpoint(loss_of, scores, use_reentrant=False)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return [*(one.detach() for one in model.parameters()), *norm.state_dict().values(), torch.get_rng_state()]


def test_bits_are_the_same(tmp_path: Path) -> None:
    bare = trained()
    with watching(tmp_path / "run", "observe") as watcher:
        watched = trained()
    assert not watcher.notes
    assert all(torch.equal(one, other) for one, other in zip(bare, watched, strict=True))
