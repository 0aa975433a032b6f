"""Evidence of a matrix that could not be decomposed or inverted: it is singular, or not positive definite."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.incident.crash.errors import chain, error_facts, live_frames

_LIN_ALG_ERROR: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]

_FUNCTION = re.compile(r"linalg[._](\w+)")
_ELEMENT = re.compile(r"\(Batch element (\d+)\)")
_SINGULAR = re.compile(r"singular|not positive-definite")
"""Other errors say that an iteration did not converge, which is true of NaN and Inf, too."""

_LOCALS_MAX = 256


def singular_matrix_document(error: BaseException) -> dict[str, Any] | None:
    """The evidence; None for other errors, and where a variable beside the call holds NaN or Inf: that is the fault.

    ``element`` counts the matrices of a batch, as torch's message does.
    """
    for one in chain(error):
        if isinstance(one, _LIN_ALG_ERROR) and _SINGULAR.search(text := str(one)):
            if _has_nonfinite(one):
                return None
            function, element = _FUNCTION.search(text), _ELEMENT.search(text)
            return {
                "error": error_facts(one),
                "function": function[1] if function is not None else None,
                "element": int(element[1]) if element is not None else None,
            }
    return None


def _has_nonfinite(error: BaseException) -> bool:
    """Whether a tensor among the variables of the line that raised, or of its callers, is not finite."""
    held = [value for frame in live_frames(error) for value in frame.f_locals.values() if type(value) is Tensor]
    floats = [one.detach() for one in held[:_LOCALS_MAX] if one.is_floating_point() and one.layout is torch.strided]
    return any(not bool(torch.isfinite(one).all()) for one in floats)
