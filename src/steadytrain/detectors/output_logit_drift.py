"""The normaliser of the output softmax drifts away from zero."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Cells, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.table_episodes import APART_STEPS, Episode, applied_cells, episodes

VOCABULARY = math.exp(12.0)
"""Vocabulary if the model does not report it: that of large models."""


@final
@dataclass(frozen=True)
class OutputLogitDrift(Detector):
    """The log of the output softmax's normaliser, log Z, drifts up or down.

    Means:
        Cross-entropy does not change when all logits move together, so nothing holds them in place. They drift, often
        late and for thousands of steps, while the loss looks healthy, until numbers of their size are too coarse for
        the differences that matter: in bfloat16 a logit of 32 has a resolution of 0.25 nats. At the start log Z is the
        log of the number of classes. A warning needs a token model, |log Z| above 30 and a drift of at least 5 in the
        recorded steps; "critical" is above 300. A classifier's logits grow with its confidence: a note, up to 100,000.

    Causes:
        - no z-loss, softcap or weight decay on the output layer (PaLM; 2309.14322)
        - the decay or cooldown of the learning rate (Marin 8B)
        - a bias of the output layer, or an embedding tied to it, that grows without weight decay
        - a fused loss whose backward omits its z-loss (OLMo 2)

    Next:
        1. Look at the norm of the output layer and of the last hidden state: which of them grows?
        2. From a checkpoint, add z-loss with weight 1e-4 (1e-5 is used too), or weight decay on the output layer.
        3. Compute logits and loss in float32.
    """

    needs: ClassVar[tuple[str, ...]] = ("modules.log_z_mean",)

    watch_nats: float = threshold(
        5.0,
        "distance of |mean log Z| above its start, the log of the vocabulary (12 if unknown), "
        "from which it counts; a z-loss of 1e-4 keeps it near zero",
    )
    warning_nats: float = threshold(30.0, "|mean log Z| of a warning: the resolution of bfloat16 is 0.25 nats there")
    critical_nats: float = threshold(
        300.0, "critical: the resolution of bfloat16 is 2 nats there, useless for a softmax"
    )
    classifier_nats: float = threshold(
        1e5, "a warning for a classifier: no confidence needs such logits, and its loss is 0 or thousands. Chosen"
    )
    drift_nats: float = threshold(
        5.0, "distance that it must have moved in the recorded steps: in pretrained models it may be constantly high"
    )
    sustained_readings: int = threshold(
        3, "readings in a row, 16 steps apart or more: one batch may have unusual logits"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        cells = applied_cells(window, "modules", "log_z_mean", apart_steps=APART_STEPS)
        if cells is None:
            return ()
        size = np.abs(cells.values)
        beyond = size > self.watch_nats + math.log(max(1.0, window.facts.get("vocabulary", VOCABULARY)))
        if not beyond.any():
            return ()
        smallest = np.nanmin(np.where(np.isnan(size).all(axis=0), np.inf, size), axis=0)
        found = episodes(window, cells, beyond, readings=self.sustained_readings)
        return tuple(
            self._symptom(window, cells, episode)
            for episode in found
            if float(
                np.nanmax(size[episode.first : episode.last + 1][:, episode.positions] - smallest[episode.positions])
            )
            >= self.drift_nats
        )

    def _symptom(self, window: Window, cells: Cells, episode: Episode) -> Symptom:
        values = cells.values[episode.first : episode.last + 1][:, episode.positions]
        # What held for as many readings as a symptom needs.
        sizes = np.sort(np.nanmax(np.abs(values), axis=1))
        size = float(sizes[-min(self.sustained_readings, len(sizes))])
        of_tokens = window.facts.get("vocabulary", 0.0) > 0.0 or window.has("tokens")
        severity: Severity = "critical" if size > self.critical_nats else "warning"
        if size <= self.warning_nats or not of_tokens:
            severity = "note" if of_tokens or size <= self.classifier_nats else "warning"
        now = float(values[-1][~np.isnan(values[-1])][0]) if (~np.isnan(values[-1])).any() else float("nan")
        return Symptom(
            name="output-logit-drift",
            severity=severity,
            first_step=episode.first_step,
            last_step=episode.last_step,
            message=f"mean log Z of the output drifted to {now:.3g} {episode.when()}",
            signals=("modules.log_z_mean",),
            tensors=tuple(name for name in episode.names if name),
            numbers={
                "log_z": now,
                "log_z_size_sustained": size,
                "log_z_size_smallest_in_view": float(np.nanmin(np.abs(cells.values[:, episode.positions]))),
            },
        )
