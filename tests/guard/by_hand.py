"""A small watched training, in which interventions are held and let go between two of its steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import steadytrain
from steadytrain.guard.guard_steering import GuardSteering
from steadytrain.guard.intervention import kinds

WORDS, WIDTH, HEADS, LENGTH = 11, 16, 2, 6


class Attends(nn.Module):
    """Looks words up, attends to those before, and says the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        mixed, _ = self.attention(x, x, x, attn_mask=mask, need_weights=False)
        return self.head(self.norm(x + mixed))


class Training:
    """Next-word prediction with Adam; :meth:`step` makes one step."""

    def __init__(self, *, spread: float = 1.0) -> None:
        torch.manual_seed(1)
        self.model = Attends()
        with torch.no_grad():
            self.model.attention.in_proj_weight[: 2 * WIDTH].mul_(spread)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def loss(self) -> Tensor:
        ids = torch.randint(0, WORDS, (4, LENGTH))
        logits = self.model(ids)
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    def step(self) -> float:
        loss = self.loss()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }


class Hand:
    """What a user does between two steps of a watched training."""

    def __init__(self, watch: Any) -> None:
        self._run = watch._watcher._run
        assert isinstance(self._run.settings.steering, GuardSteering)

    def hold(self, name: str, **settings: Any) -> None:
        self._run.settings.steering.hold(self._run.streams[0], name, kinds()[name](**settings))

    def let_go(self, name: str) -> None:
        assert self._run.settings.steering.let_go(self._run.streams[0], name)


def watched(folder: Path, training: Any, *, policy: str = "stop") -> Any:
    """The watch of a training, as a context."""
    return steadytrain.watch(training.model, training.optimizer, name="run", runs_dir=folder, policy=policy, to="none")


def policy_file(folder: Path, text: str) -> str:
    path = folder / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)
