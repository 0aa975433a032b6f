"""The weights that stand beside a bias, by name: plain, or made of other parameters by a normalisation of weights."""

from __future__ import annotations

from collections.abc import Collection

MADE_OF = ("_orig", "_v", "_g")
"""What ``torch.nn.utils.spectral_norm`` and ``weight_norm`` call the parameters of a weight."""

PARAMETRIZED = ("original", "original0", "original1")
"""The same of ``torch.nn.utils.parametrizations``."""


def weight_beside(bias: str, names: Collection[str]) -> str | None:
    """The parameter among ``names`` that is, or makes, the weight of the module of ``bias``; None if there is none.

    ``bias`` may be one of several of a module, as ``bias_hh_l0`` of a recurrent layer is.
    """
    stem, found, last = bias.rpartition("bias")
    if not found:
        return None
    made = (f"{stem}parametrizations.weight{last}.{part}" for part in PARAMETRIZED)
    candidates = (f"{stem}weight{last}", *(f"{stem}weight{last}{end}" for end in MADE_OF), *made)
    return next((name for name in candidates if name in names), None)
