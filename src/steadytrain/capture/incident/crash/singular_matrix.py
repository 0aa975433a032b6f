"""Evidence of a matrix that could not be decomposed or inverted: it is singular, or not positive definite."""

from __future__ import annotations

import re
from typing import Any

import torch

from steadytrain.capture.incident.crash.errors import chain, error_facts

_LIN_ALG_ERROR: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]

_FUNCTION = re.compile(r"linalg[._](\w+)")
_ELEMENT = re.compile(r"\(Batch element (\d+)\)")
_OF_NONFINITE = "non-finite values"
"""A matrix with NaN or Inf is no singular one."""


def singular_matrix_document(error: BaseException) -> dict[str, Any] | None:
    """The evidence; None for other errors. ``element`` counts the matrices of a batch, as torch's message does."""
    for one in chain(error):
        if isinstance(one, _LIN_ALG_ERROR) and _OF_NONFINITE not in (text := str(one)):
            function, element = _FUNCTION.search(text), _ELEMENT.search(text)
            return {
                "error": error_facts(one),
                "function": function[1] if function is not None else None,
                "element": int(element[1]) if element is not None else None,
            }
    return None
