"""The gradient of the token embedding jumps ahead of all others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import FloatArray, IntArray, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.layer_names import is_token_embedding
from steadytrain.statistics.medians import median
from steadytrain.statistics.rolling_baseline import stride_of
from steadytrain.statistics.table_episodes import before, known_first_reading, loss_jump, stretches

OTHERS_MIN = 3
REFERENCE_STEPS = 128
REFERENCE_STEPS_MIN = 64
GAP_STEPS = 16
SCALE_MIN = 0.05
"""Of the log: below it the deviation of a very regular run says nothing."""


@final
@dataclass(frozen=True)
class EmbeddingGradientSpike(Detector):
    """The gradient norm of the token embedding jumps, and that of the other tensors does not.

    Means:
        In large language models the embedding's gradient spikes several steps before the loss does (GLM-130B,
        2210.02414), because it gets what every layer above amplifies, and its rows are small and rarely updated. Here
        the ratio of its norm to that of all other tensors is more than 8 robust standard deviations above its own
        median, and at least three times the median. One such step is a note; it is a warning if another follows within
        16 steps or the loss jumps afterwards.

    Causes:
        - embeddings much smaller than what the layers expect (a deviation of 0.02 instead of 1, 2312.16903)
        - a batch of rare or damaged tokens
        - no norm after the embedding, or a first layer whose norm divides by something small
        - outdated second moments of the embedding's rows: rare tokens get steps that are far too large

    Next:
        1. Check whether the loss follows within ten steps.
        2. Shrink the embedding's gradient (alpha 0.1, GLM-130B), or scale embeddings by the root of the width, or add a
           norm after them (BLOOM).
        3. Inspect the tokens of the batch: repeated, rare, or from another tokenizer?
        4. Leave the embedding out of weight decay.
    """

    needs: ClassVar[tuple[str, ...]] = ("gradient_norms",)
    spoils_weights: ClassVar[bool] = True

    log_z: float = threshold(
        8.0,
        "robust standard deviations of the log of its share above the median: as for gradient "
        "norms, whose log is still skewed. GLM-130B gives no number",
    )
    rise_ratio: float = threshold(3.0, "and this many times its median: a very regular run has a very small deviation")
    again_z: float = threshold(6.0, "bound for the further spikes within 16 steps: no alarm is below 6")
    again_steps: int = threshold(16, "a second spike this soon makes it a warning: chosen")
    jump_scales: float = threshold(8.0, "robust standard deviations that make a jump of the loss")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        embeddings, others = _columns(window.tensor_names)
        if not len(embeddings) or len(others) < OTHERS_MIN or len(window.gradient_norms) != len(window):
            return ()
        here = ~(window.skipped | window.refused)
        mine = np.square(np.maximum(window.gradient_norms[:, embeddings], 0.0), dtype=np.float64).sum(axis=1)
        rest = _rest(window, others, mine)
        here &= (mine > 0.0) & (rest > 0.0) & np.isfinite(mine) & np.isfinite(rest)
        steps, share = window.steps[here], 0.5 * np.log(mine[here] / rest[here])
        if not len(share) or share.max() - share.min() < np.log(self.rise_ratio):
            return ()
        at = np.flatnonzero(share > median(share) + np.log(self.rise_ratio) / 2)
        usual, scale = before(share, at, width=REFERENCE_STEPS, gap=GAP_STEPS, least=REFERENCE_STEPS_MIN)
        rise = np.where(np.isfinite(usual), share[at] - usual, 0.0)
        z, ratio = np.zeros(len(share)), np.ones(len(share))
        z[at], ratio[at] = rise / np.maximum(scale, SCALE_MIN), np.exp(rise)
        spiked = (z > self.again_z) & (ratio > self.rise_ratio)
        found = []
        for start, stop in stretches(spiked, hole_max=max(1, self.again_steps // stride_of(steps))):
            if z[start:stop].max() <= self.log_z:
                continue
            span = (known_first_reading(window, steps, start, last=stop - 1), int(steps[stop - 1]))
            found.append(self._symptom(window, embeddings, span, (z[start:stop], ratio[start:stop])))
        return tuple(found)

    def _symptom(
        self, window: Window, embeddings: IntArray, span: tuple[int, int], how: tuple[FloatArray, FloatArray]
    ) -> Symptom:
        (first_step, last_step), (z, ratio) = span, how
        jump = loss_jump(window, first_step, last_step + self.again_steps)
        times = int((z > self.again_z).sum())
        severity: Severity = "warning" if times > 1 or jump > self.jump_scales else "note"
        return Symptom(
            name="embedding-gradient-spike",
            severity=severity,
            first_step=first_step,
            last_step=last_step,
            message=f"the gradient of {window.tensor_names[embeddings[0]]} against the rest of the model rose to "
            f"{ratio.max():.3g} times its median at step {first_step}",
            signals=("gradient_norms",),
            tensors=tuple(window.tensor_names[at] for at in embeddings),
            numbers={
                "z": float(z.max()),
                "ratio": float(ratio.max()),
                "spiked_steps": float(times),
                "loss_jump_scales": jump,
            },
        )


def _rest(window: Window, others: IntArray, mine: FloatArray) -> FloatArray:
    """Squared gradient norm of all but the embeddings, from the global norm where every step has it."""
    if window.has("gradient_norm") and window.present["gradient_norm"].all():
        whole = np.square(window.signals["gradient_norm"])
        if (whole >= 1.001 * mine).all():  # else it is a norm of something else, or nothing is left of it
            return whole - mine
    squares = np.square(np.maximum(window.gradient_norms[:, others], 0.0), dtype=np.float64)  # absent ones are -1
    rest: FloatArray = squares.sum(axis=1)
    return rest


@lru_cache(maxsize=8)
def _columns(names: tuple[str, ...]) -> tuple[IntArray, IntArray]:
    """Positions of token embeddings and of all other tensors."""
    embeds = np.array([is_token_embedding(name) for name in names], np.bool_)
    return np.flatnonzero(embeds), np.flatnonzero(~embeds)
