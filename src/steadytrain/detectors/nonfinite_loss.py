"""The loss is NaN or Inf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Aim, Detector
from steadytrain.statistics.rolling_baseline import known_first_step, stride_of
from steadytrain.statistics.table_episodes import stretches


@final
@dataclass(frozen=True)
class NonfiniteLoss(Detector):
    """The loss of a step is NaN or Inf.

    Means:
        The forward pass or the loss itself left the range of its number format, or divided zero by zero. If this update
        is applied, every weight that it reaches is lost, and only an older checkpoint brings them back. A logged loss
        of 0.0 with a gradient norm of NaN counts, too, and is reported as hidden: some trainers replace a NaN before
        they log it (`logging_nan_inf_filter` of Hugging Face's Trainer is on by default).

    Causes:
        - a value above 65504 in float16, most often in a model that was pre-trained in bfloat16 (T5, Gemma):
          half-precision-overflow
        - log, sqrt or a division at zero (singular-operation); an epsilon that float16 rounds to zero
          (optimizer-epsilon-underflow)
        - an attention row in which every key is masked (fully-masked-attention, pytorch#41508), or a batch with no
          label left to predict (no-supervised-tokens)
        - NaN or Inf already in the batch (nonfinite-input), or in weights that an earlier update broke
        - weights that diverged: look for loss-spike, divergence or nonfinite-gradient at earlier steps

    Next:
        1. Open the incident: it names the first operation that made the value and the range of its inputs.
        2. If that operation's inputs were already huge, it is not the cause; follow them upstream.
        3. If the batch holds the NaN, print its sample ids. If the weights do, go back to the step before.
        4. In float16, run the same step in bfloat16 or float32. Do not start by lowering the learning rate: that hides
           most causes and proves none.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss", "gradient_norm")
    nonfinite_rank: ClassVar[int | None] = 4
    aim: ClassVar[Aim] = "finite"
    keeps_incident: ClassVar[bool] = False
    spoils_weights: ClassVar[bool] = True

    skipped_steps_min: int = threshold(
        3,
        "steps in a row, all skipped by a gradient scaler, before a non-finite loss is reported. "
        "A healthy scaler skips single steps (about one in 2000); PyTorch's halves the scale at "
        "each, so after three in a row even an eighth of the scale did not help",
    )
    hole_steps_max: int = threshold(
        16,
        "finite steps that an episode may contain: one interval between two analyses, so that an "
        "intermittent fault is one symptom",
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        if "loss" not in window.signals:
            return ()
        here = window.present["loss"]
        values = window.signals["loss"][here]
        hidden = _hidden(window)[here]
        bad = ~np.isfinite(values) | hidden
        if not bad.any():
            return ()
        steps, skipped = window.steps[here], window.skipped[here]
        # A finite loss of a skipped step is no recovery, and a lone skip between two faults is not one of its own.
        episodes = [self._kept(skipped, start, stop) for start, stop in stretches(bad)]
        kept = np.zeros(len(bad), np.bool_)
        for start, stop in filter(None, episodes):
            kept[start:stop] = True
        stride = stride_of(window.steps)
        found = []
        for start, stop in stretches(kept, hole_max=self.hole_steps_max):
            rows = np.flatnonzero(bad[start:stop]) + start
            first_step = known_first_step(
                steps, start, first_seen=int(window.steps[0]), stride=stride, last_row=stop - 1
            )
            last_step = int(steps[stop - 1])
            all_skipped = bool(skipped[rows].all())
            nan = int(np.isnan(values[rows]).sum())
            infinite = int(np.isinf(values[rows]).sum())
            found.append(
                Symptom(
                    name="nonfinite-loss",
                    severity="warning" if all_skipped else "critical",
                    first_step=first_step,
                    last_step=last_step,
                    message=_message(values[rows[0]], first_step, last_step, len(rows) if all_skipped else 0),
                    signals=("loss", "gradient_norm") if hidden[rows].any() else ("loss",),
                    numbers={
                        "steps": float(len(rows)),
                        "nan_steps": float(nan),
                        "inf_steps": float(infinite),
                        "hidden_steps": float(len(rows) - nan - infinite),
                        "skipped_steps": float(skipped[rows].sum()),
                    },
                )
            )
        return tuple(found)

    def _kept(self, skipped: NDArray[np.bool_], start: int, stop: int) -> tuple[int, int] | None:
        """The stretch, unless it is only a scaler that looks for its scale."""
        searching = skipped[start:stop].all() and stop - start < self.skipped_steps_min
        return None if searching else (start, stop)


def _hidden(window: Window) -> NDArray[np.bool_]:
    """Steps whose loss reads exactly 0.0 while the gradient norm is not finite."""
    if "gradient_norm" not in window.signals:
        return np.zeros(len(window), np.bool_)
    bad_norm = window.present["gradient_norm"] & ~np.isfinite(window.signals["gradient_norm"])
    hidden: NDArray[np.bool_] = bad_norm & window.present["loss"] & (window.signals["loss"] == 0.0)
    return hidden


def _message(first: float, first_step: int, last_step: int, skipped: int) -> str:
    when = f"at step {first_step}" if first_step == last_step else f"from step {first_step} to {last_step}"
    if np.isfinite(first):
        return (
            f"the loss reads 0.0 {when} while the gradient norm is not finite: a hidden NaN. Most likely the trainer "
            "replaced it before it logged the loss (`logging_nan_inf_filter`)"
        )
    how = f"; a gradient scaler skipped these {skipped} steps and it did not help" if skipped else ""
    return f"the loss is {'NaN' if np.isnan(first) else 'Inf'} {when}{how}"
