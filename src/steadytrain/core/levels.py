"""How much to record: the levels of ``--level``, what each measures and how often.

Every level measures the loss and the L2 norm of every gradient in every step, because the gate needs them.
"""

from __future__ import annotations

from dataclasses import dataclass

from steadytrain.core.errors import UsageError

NEAR_STEPS = 64
"""Steps that are measured whole after a symptom has been raised."""

NEAR_STEPS_SHARE_MAX = 0.1
"""Share of all steps that may be measured whole for symptoms, so that a run that stays sick does not become slow."""


@dataclass(frozen=True)
class Level:
    """Cadences in steps (None: never), and in seconds for the machine.

    Args:
        weights_every: the global norm of the weights.
        tensors_every: weights, gradients, updates and optimizer moments, one row a parameter.
        modules_every: outputs of modules, one row a module.
        histograms_every: log2 histograms of gradients, weights and outputs.
        machine_every_s: host and accelerators.
    """

    name: str
    weights_every: int
    tensors_every: int | None
    modules_every: int | None
    histograms_every: int | None
    machine_every_s: float


LEVELS: dict[str, Level] = {
    level.name: level
    for level in (
        Level("light", 100, None, None, None, 60.0),
        Level("standard", 50, 50, 50, 500, 10.0),
        Level("full", 8, 8, 8, 80, 5.0),
    )
}
LEVEL_DEFAULT = "standard"


def find_level(name: str) -> Level:
    """The level of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in LEVELS:
        raise UsageError(f"{name!r}: no such level; one of {', '.join(LEVELS)}")
    return LEVELS[name]
