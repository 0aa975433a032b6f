"""The loss is NaN or Inf."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np

from steadytrain.model import Symptom, Window
from steadytrain.reference import known_first_step, newest_episode, stride_of
from steadytrain.symptoms import Detector


@final
@dataclass(frozen=True)
class NonfiniteLoss(Detector):
    """The loss of a step is NaN or Inf.

    Means:
        The forward pass or the loss itself left the range of its number format, or divided zero by zero. If this
        update is applied, every weight that it reaches is lost, and nothing but an older checkpoint brings them back.
        A loss that shows in a log as 0.0, or as a plain number, may still be this: some trainers replace a NaN before
        they log it (`logging_nan_inf_filter` of Hugging Face's Trainer is on by default).

    Causes:
        - a value above 65504 in float16, most often in a model that was pre-trained in bfloat16 (T5, Gemma)
        - log, sqrt or a division at zero; an epsilon that float16 rounds to zero
        - an attention row in which every key is masked (pytorch#41508), or a batch with no label left to predict
        - NaN or Inf already in the batch, or in weights that an earlier update broke
        - weights that diverged: look for loss-spike, divergence or nonfinite-gradient at earlier steps

    Next:
        1. Open the incident: it names the first operation that made the value and the range of its inputs.
        2. If that operation's inputs were already huge, it is not the cause; follow them upstream.
        3. If the batch holds the NaN, print its sample ids. If the weights do, go back to the step before.
        4. In float16, run the same step in bfloat16 or float32. Do not start by lowering the learning rate: that hides
           most causes and proves none.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)

    skipped_steps_min: int = field(
        default=3,
        metadata={
            "about": "steps in a row, all skipped by a gradient scaler, before a non-finite loss is reported. A scaler "
            "in search of its scale skips one at a time (about one in 2000 steps); PyTorch's halves the scale at each, "
            "so three in a row were not cured by a scale eight times smaller"
        },
    )
    recent_steps: int = field(
        default=16,
        metadata={
            "about": "how far back from the newest step the last non-finite one may lie: one interval between two looks"
        },
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        symptom = self._newest(window)
        return (symptom,) if symptom is not None else ()

    def _newest(self, window: Window) -> Symptom | None:
        loss = window.series("loss")
        run = newest_episode(~np.isfinite(loss.values))
        if run is None:
            return None
        first, last = run
        stride = stride_of(window.steps)
        if loss.steps[last] <= window.steps[-1] - self.recent_steps * stride:
            return None
        skipped = window.skipped[window.present["loss"]][first : last + 1]
        if skipped.all() and len(skipped) < self.skipped_steps_min:
            return None
        values = loss.values[first : last + 1]
        first_step = known_first_step(loss.steps, first, first_seen=int(window.steps[0]), stride=stride)
        last_step = int(loss.steps[last])
        kind = "NaN" if np.isnan(values[0]) else "Inf"
        when = f"at step {first_step}" if first_step == last_step else f"from step {first_step} to {last_step}"
        how = f"; a gradient scaler skipped these {len(values)} steps and it did not help" if skipped.all() else ""
        return Symptom(
            name="nonfinite-loss",
            severity="warning" if skipped.all() else "critical",
            first_step=first_step,
            last_step=last_step,
            message=f"the loss is {kind} {when}{how}",
            signals=("loss",),
            numbers={
                "steps": float(len(values)),
                "nan_steps": float(np.isnan(values).sum()),
                "inf_steps": float(np.isinf(values).sum()),
                "skipped_steps": float(skipped.sum()),
            },
        )
