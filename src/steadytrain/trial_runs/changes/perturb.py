"""Perturbations that must not change a sound conclusion: one ulp, a random step, another seed."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from typing import Any, final

import torch

from steadytrain.trial_runs.changes import LiveChange, at_least, more_than
from steadytrain.trial_runs.launched_script import Launched

SEED_STRIDE = 1_000_003


@final
@dataclass
class OneUlp(LiveChange):
    """Once at the start, the first element of each weight moves to the next representable number."""

    @torch.no_grad()
    def begin(self, process: Launched) -> None:
        for parameter in process.parameters:
            if parameter.is_floating_point() and parameter.numel():
                flat = parameter.detach().view(-1) if parameter.is_contiguous() else parameter.detach()[..., :1]
                first = flat[:1]
                first.copy_(torch.nextafter(first, torch.full_like(first, torch.inf)))
                self.touch()


@final
@dataclass
class RandomStep(LiveChange):
    """Once at the start, each trained weight tensor moves by a random vector whose norm is ``share`` of its own.

    An element that is exactly 0 stays: no update has moved it (the row of a padding id).
    """

    share: float
    seed: int

    def check(self) -> None:
        more_than("share", self.share, 0.0)
        at_least("seed", self.seed, 0)

    @torch.no_grad()
    def begin(self, process: Launched) -> None:
        source = torch.Generator().manual_seed(self.seed)
        for parameter in process.parameters:
            if parameter.is_floating_point() and parameter.numel() and parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=source).to(parameter.device, torch.float32)
                noise *= parameter != 0
                size = float(parameter.detach().float().norm()) * self.share / max(float(noise.norm()), 1e-30)
                parameter.add_((noise * size).to(parameter.dtype))
                self.touch()


@final
@dataclass
class OtherSeed(LiveChange):
    """Random numbers in the model's forward (dropout, noise) differ; the batches stay."""

    seed: int

    def check(self) -> None:
        at_least("seed", self.seed, 0)

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> None:
        if process.role == "probe":
            return
        seed = (self.seed * SEED_STRIDE + process.trained * 31 + number) % (1 << 31)
        random.seed(seed)
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is not None:
            numpy_random.seed(seed)
        torch.manual_seed(seed)
        self.touch()


@final
@dataclass
class SeedEverything(LiveChange):
    """Changes the seeds that the script sets: initial weights, data order, dropout."""

    is_early = True
    seed: int
    nothing = "the script sets no seed"

    def check(self) -> None:
        at_least("seed", self.seed, 1)

    def early(self, process: Launched) -> None:
        original = torch.manual_seed

        def manual_seed(seed: Any) -> torch.Generator:
            self.touch()
            return original(int(seed) + self.seed)

        torch.manual_seed = manual_seed


@final
@dataclass
class Deterministic(LiveChange):
    """Operations use their deterministic form if they have one (``torch.use_deterministic_algorithms``)."""

    is_early = True

    def early(self, process: Launched) -> None:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
        self.touch()
