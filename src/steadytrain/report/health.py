"""A terminal's summary of the tables: the largest updates, waiting for data, the loss scale. As text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steadytrain.core.json_values import number_to_json
from steadytrain.core.model import Window
from steadytrain.report.table_readings import read
from steadytrain.report.topics import data_wait_share
from steadytrain.report.wording import Fact, clean, count, facts_of, number
from steadytrain.storage.run_folder import Run

LAYERS_MAX = 3


@dataclass(frozen=True)
class UpdateRatio:
    """A tensor's update ratio: norm of the update over norm of the weight."""

    tensor: str
    ratio: float


@dataclass(frozen=True)
class Health:
    """The newest measurements of a stream, None if they are missing.

    ``update_ratios`` holds the largest ratios of the last reading, at step ``update_ratio_step``.
    """

    update_ratios: tuple[UpdateRatio, ...]
    update_ratio_step: int | None
    data_wait_share: float | None
    loss_scale: float | None
    scaler_skips: int | None

    def facts(self) -> tuple[Fact, ...]:
        """At most three lines."""
        ratios = ", ".join(f"{clean(entry.tensor)} {number(entry.ratio)}" for entry in self.update_ratios)
        scale = number(self.loss_scale) if self.loss_scale is not None else ""
        skips = f", {count(self.scaler_skips)} steps skipped" if self.scaler_skips is not None else ""
        share = self.data_wait_share
        return facts_of(
            (
                "largest updates",
                f"{ratios} of the weight, at step {count(self.update_ratio_step or 0)}" if ratios else "",
            ),
            ("data wait", f"{share:.1%} of the time" if share is not None else ""),
            ("loss scale", f"{scale}{skips}" if scale else ""),
        )

    def to_json(self) -> dict[str, Any]:
        """Fields of ``steadytrain.run/1``."""
        return {
            "update_ratios": [
                {"tensor": entry.tensor, "ratio": number_to_json(entry.ratio), "step": self.update_ratio_step}
                for entry in self.update_ratios
            ],
            "data_wait_share": self.data_wait_share,
            "loss_scale": number_to_json(self.loss_scale) if self.loss_scale is not None else None,
            "scaler_skips": self.scaler_skips,
        }


def health(run: Run, stream: str, window: Window) -> Health:
    """Summarize ``stream``, whose scalars are ``window``."""
    ratios, step = _update_ratios(run, stream)
    scale, skips = window.series("loss_scale").values, window.series("scaler_skips").values
    return Health(
        update_ratios=ratios,
        update_ratio_step=step,
        data_wait_share=data_wait_share(window),
        loss_scale=float(scale[-1]) if len(scale) else None,
        scaler_skips=int(skips[-1]) if len(skips) and np.isfinite(skips[-1]) else None,
    )


def _update_ratios(run: Run, stream: str) -> tuple[tuple[UpdateRatio, ...], int | None]:
    cells = read(run, stream, ("tensors",)).cells("tensors", "update_ratio")
    if cells is None:
        return (), None
    last = int(np.flatnonzero(np.any(~np.isnan(cells.values), axis=1))[-1])
    measured = np.flatnonzero(~np.isnan(cells.values[last]))
    order = measured[np.argsort(-cells.values[last][measured], kind="stable")][:LAYERS_MAX]
    found = (UpdateRatio(cells.rows[index], float(cells.values[last, index])) for index in order.tolist())
    return tuple(found), int(cells.steps[last])
