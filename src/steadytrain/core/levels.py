"""How much a run records: the levels of ``--level``, what each measures and how often.

Every level measures the loss and the L2 norm of each gradient at every step, because the gate needs them.
"""

from __future__ import annotations

from dataclasses import dataclass

from steadytrain.core.errors import UsageError

NEAR_STEPS, NEAR_WHOLE = 64, 16
"""After a symptom the measurements are dense for so many steps: the first ones of them whole, then every few."""

NEAR_STEPS_SHARE_MAX = 0.1
"""Largest share of all steps that symptoms may cause to be measured in full. It keeps a run that stays sick fast."""

YOUNG: tuple[tuple[int, int], ...] = ((256, 16), (512, 32))
"""Up to so many steps after the start, a resume or a loaded state, tensors and modules are measured every so many."""

HINT_STEPS, HINT_EVERY = 32, 4
"""After a hint (a note, a jump of the rate, a tensor whose gradient left the others) they are measured so often, and in
the later steps near a symptom."""

EXTRA_STEPS, EXTRA_SHARE_MAX = 40, 0.02
"""How many steps are measured for youth and hints beyond the level's cadence: so many, and this share of all."""


@dataclass(frozen=True)
class Level:
    """How often each measurement runs: in steps (None: never), and in seconds for the machine.

    A young run is measured more often (``YOUNG``).

    Args:
        weights_every: the global norm of the weights.
        tensors_every: weights, gradients, updates and optimizer moments, one row per parameter.
        modules_every: outputs of modules, one row per module.
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
    """Return the level called ``name``.

    Raises:
        UsageError: no level has that name.
    """
    if name not in LEVELS:
        raise UsageError(f"{name!r}: no such level; one of {', '.join(LEVELS)}")
    return LEVELS[name]
