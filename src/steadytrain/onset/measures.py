"""The quantities that an onset search measures at every step, in the order in which a step computes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Phase = Literal["batch", "forward", "loss", "backward", "optimizer"]
PHASES: tuple[Phase, ...] = ("batch", "forward", "loss", "backward", "optimizer")

Direction = Literal["up", "down", "both"]


@dataclass(frozen=True)
class Quantity:
    """A measured quantity of a tensor or of the step.

    ``ratio``: it is compared by ratios (a scale), else by differences. ``least`` is the smallest ratio or difference
    that
    counts, however quiet the quantity was. ``limit`` is a value that no known healthy run reaches; ``grown`` is such a
    ratio
    to the first steps. A slow growth into either is traced back to its start. ``shifts``: it has no trend, so a level
    shift
    smaller than a jump counts too.
    """

    phase: Phase
    words: str
    direction: Direction = "up"
    ratio: bool = True
    least: float = 2.0
    limit: float | None = None
    grown: float | None = None
    shifts: bool = False


QUANTITIES: Mapping[str, Quantity] = {
    "input_rms": Quantity("batch", "root mean square of the input", "both", shifts=True),
    "input_abs_max": Quantity("batch", "largest magnitude in the input", least=4.0),
    "input_rarity": Quantity(
        "batch", "mean rarity of the tokens, nats, by how often they came before", "up", False, 1.0, shifts=True
    ),
    "input_commonest_share": Quantity("batch", "share of the commonest token in the batch", least=3.0),
    "target_rms": Quantity("batch", "root mean square of the targets", "both", shifts=True),
    "target_abs_max": Quantity("batch", "largest magnitude among the targets", least=4.0),
    "target_rarity": Quantity(
        "batch", "mean rarity of the labels, nats, by how often they came before", "up", False, 1.0, shifts=True
    ),
    "target_commonest_share": Quantity("batch", "share of the commonest label in the batch", least=3.0),
    "output_std": Quantity("forward", "standard deviation of the output"),
    "output_abs_max": Quantity("forward", "largest magnitude of the output", least=3.0),
    # A healthy half-precision model stays well below a tenth of 65504 (zoo/layers/healthy_half_precision.py: 0.02).
    "headroom": Quantity("forward", "largest magnitude of the output over the largest number of its dtype", limit=0.1),
    # Dehghani et al. 2023 (arXiv 2302.05442): training diverges where attention logits pass about 50.
    "attention_logit_max": Quantity("forward", "largest input of attention's softmax", limit=50.0),
    "attention_entropy": Quantity("forward", "entropy of attention, nats", "down", least=3.0),
    "log_z": Quantity("forward", "mean logsumexp of the logits, nats", "both", False, 4.0),
    "loss": Quantity("loss", "loss", shifts=True),
    "row_loss_max": Quantity("loss", "largest loss of a row", least=3.0),
    "row_loss_share": Quantity("loss", "share of the largest row in the loss", least=3.0),
    "gradient_norm": Quantity("backward", "L2 norm of the gradient"),
    "update_ratio": Quantity("optimizer", "norm of the update over norm of the weight"),
    # Wortsman et al. 2023 (arXiv 2304.13013): values beyond 2.3 precede loss spikes. Healthy runs reach them too.
    "gradient_to_second_moment": Quantity(
        "optimizer", "RMS of the gradient over the root of its second moment", least=1.5
    ),
    "weight_norm": Quantity("optimizer", "L2 norm of the weight", least=1.5),
    "parameter_norm": Quantity("optimizer", "L2 norm of all weights", least=1.5, grown=4.0),
}

TENSOR_COLUMNS: Mapping[str, str] = {
    "update_ratio": "update_ratio",
    "gradient_to_second_moment": "gradient_to_second_moment",
    "weight_norm": "weight_norm",
}
"""Quantity by column of the ``tensors`` table."""

MODULE_COLUMNS: Mapping[str, str] = {
    "std": "output_std",
    "abs_max": "output_abs_max",
    "headroom": "headroom",
    "attention_logit_max": "attention_logit_max",
    "attention_entropy": "attention_entropy",
    "log_z_mean": "log_z",
}
"""Quantity by column of the ``modules`` table."""

HALF_HEADROOM = 1e-6
"""A smaller headroom belongs to a dtype with the range of float32, which is never exhausted."""


@dataclass(frozen=True)
class Key:
    """A quantity of one tensor, module or input; "" for the whole step."""

    quantity: str
    tensor: str

    @property
    def phase(self) -> Phase:
        return QUANTITIES[self.quantity].phase
