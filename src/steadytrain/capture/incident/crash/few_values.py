"""Evidence of a norm in training mode that got one value a channel: a batch of a single row."""

from __future__ import annotations

import re
from typing import Any

from steadytrain.capture.incident.crash.errors import chain, error_facts

_FEW = re.compile(
    r"Expected more than 1 (?:value per channel|spatial element) when training, got input size "
    r"(?:torch\.Size\()?\[([\d, ]*)\]"
)


def few_values_document(error: BaseException, rows: int | None) -> dict[str, Any] | None:
    """The evidence; None for other errors. Torch raises it in ``torch.nn.functional.batch_norm`` and its kin.

    Args:
        rows: rows of the model's last input, None if it was not called.
    """
    for one in chain(error):
        found = _FEW.search(str(one)) if isinstance(one, ValueError) else None
        if found is not None:
            shape = [int(size) for size in found[1].split(",") if size.strip()]
            return {"error": error_facts(one), "shape": shape, "rows": rows}
    return None
