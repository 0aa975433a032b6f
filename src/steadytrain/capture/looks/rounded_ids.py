"""Finds ids that were rounded: they lay in a 16-bit float before they were looked up.

float16 holds every whole number up to 2,048, then every second one up to 4,096, then every fourth; bfloat16 up to 256.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

EXACT = {"bfloat16": (torch.bfloat16, 256), "float16": (torch.float16, 2048)}
"""The formats, and the whole number up to which each holds all. float16 holds what bfloat16 does, up to 65,504."""

IDS_MIN = 24
"""Different ids above that number. That all of them can be held by chance has a probability of 2^-24 at most."""

ODD_MIN = 8
"""Different odd ids below it: ids that are all even were made so."""

IDS_MAX = 1 << 16
"""Ids of one look-up that are read."""

LOOKUPS_MAX = 4


@torch.no_grad()
def rounded_rows(looked_up: Sequence[Tensor]) -> Iterator[tuple[str, float]]:
    """``ids-in-float16`` is the number of different ids above 2,048, if float16 holds all of them; ``ids-in-bfloat16``
    of those above 256.

    Args:
        looked_up: the ids that embeddings got, integers of any shape.
    """
    for ids in looked_up[:LOOKUPS_MAX]:
        known: Tensor = torch.unique(ids.detach().reshape(-1)[:IDS_MAX])
        for name, (dtype, exact) in EXACT.items():
            above, below = known[known > exact], known[known < exact]
            if len(above) < IDS_MIN or int((below % 2).sum()) < ODD_MIN:
                continue
            if bool((above.to(dtype).to(torch.float64) == above.to(torch.float64)).all()):
                yield f"ids-in-{name}", float(len(above))
                return
