"""Gradients die out on their way to the first layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Cells, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Aim, Detector
from steadytrain.statistics.layer_names import Profile, profiles
from steadytrain.statistics.table_episodes import APART_STEPS, NAMES_MAX, Episode, episodes


@final
@dataclass(frozen=True)
class VanishingGradients(Detector):
    """Gradients vanish along the depth: those of the first block are a thousandth of those of the last.

    Means:
        Backpropagation multiplies by the derivative of every block. If these are below one, only noise or nothing
        reaches the first blocks, and only the last ones learn. The detector finds blocks by the numbers in parameter
        names and excludes norms and embeddings. "critical" means a millionth, or zero.

    Causes:
        - sigmoid or tanh in a deep stack, without residual connections
        - an initialisation that is too small for the depth and the activation
        - a dead block in between (see dead-units): everything below it has a gradient of exactly zero
        - residual branches scaled down too far, or a norm in the residual path (post-norm without warm-up)
        - truncated backpropagation, `detach`, or a frozen block in between

    Next:
        1. Plot the gradient norm of each block. A slope points to the initialisation or activation; a step, to one
           block.
        2. Residual connections with the norm inside the branch; ReLU or GELU with He initialisation.
        3. For tanh: Xavier initialisation. For recurrent stacks: gates, or fewer steps back in time.
        4. Check before training with one batch: the ratio along the depth should be between 0.1 and 10.
    """

    needs: ClassVar[tuple[str, ...]] = ("gradient_norms", "tensors.gradient_norm")
    aim: ClassVar[Aim] = "progress"

    depth_ratio: float = threshold(
        1e-3,
        "gradient norm of the first block over that of the last one (the bound of AutoTrainer, "
        "ICSE 2021); healthy stacks have 0.1 to 10",
    )
    critical_ratio: float = threshold(1e-6, "critical: below it only rounding arrives, in float32 and Adam's epsilon")
    sustained_readings: int = threshold(
        4, "readings in a row, 16 steps apart or more: at the start a branch may begin at zero"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = []
        for profile in profiles(window, apart_steps=APART_STEPS):
            ratio = profile.first_to_last()
            cells = Cells(profile.steps, (profile.stack.name,), ratio[:, None])
            for episode in episodes(window, cells, cells.values < self.depth_ratio, readings=self.sustained_readings):
                found.append(self._symptom(window, profile, ratio[episode.first : episode.last + 1], episode))
        return tuple(sorted(found, key=lambda symptom: symptom.first_step))

    def _symptom(self, window: Window, profile: Profile, ratio: np.ndarray, episode: Episode) -> Symptom:
        norms = np.nanmedian(profile.norms[episode.first : episode.last + 1], axis=0)
        typical = float(np.nanmedian(ratio))
        weak = [profile.stack.block(at) for at in np.flatnonzero(norms < self.depth_ratio * norms[-1])]
        return Symptom(
            name="vanishing-gradients",
            severity="critical" if typical < self.critical_ratio else "warning",
            first_step=episode.first_step,
            last_step=episode.last_step,
            message=f"the gradient of {profile.stack.spoken(0)} was {typical:.2g} times that of "
            f"{profile.stack.spoken(len(norms) - 1)} {episode.when()}; {len(weak)} of {len(norms)} blocks lie below "
            f"{self.depth_ratio:g}",
            signals=("gradient_norms",),
            tensors=tuple(weak[:NAMES_MAX]),
            numbers={
                "ratio": typical,
                "blocks": float(len(norms)),
                "blocks_below": float(len(weak)),
                "norm_first": float(norms[0]),
                "norm_last": float(norms[-1]),
            },
        )
