"""Labels beside the tokens that the model was given, and beside what its attention sees, in one loss.

Not here: which of these are faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from steadytrain.capture.looks.loss_graph import Likelihood
from steadytrain.capture.looks.token_inputs import SHIFTS, shares_equal, tokens_beside

ALIGNED = 0.99
SUPERVISED_MIN = 8
PAD_RUN, PAD_AT_END = 2, 0.95
"""Padding repeats at the ends of rows and hardly occurs elsewhere."""

KINDS_MIN = 4
"""Labels of fewer kinds are equal to tokens by chance."""


@torch.no_grad()
def label_rows(
    one: Likelihood, given: Sequence[Tensor], rows: int, attention: Sequence[Tensor | bool]
) -> Iterator[tuple[str, float]]:
    """Measures of one likelihood, by name.

    ``rows-without-label`` is the share of the batch's ``rows`` without a label. The others need labels that stand
    beside one of the integer inputs ``given`` ([rows, length]). ``label-shift`` says how many places later the token
    stands that each label is, ``padding-share`` which share of the labels is padding that is to be told after padding.
    ``next-place-seen`` is the least weight, over the model's square attentions, that places with a label give to the
    place after them, and ``causal`` whether that is none.
    """
    labels = one.targets
    if labels.is_floating_point() or not labels.numel():
        return
    used = labels != one.ignored
    if rows > 1 and labels.numel() % rows == 0 and labels.numel() > rows:
        yield "rows-without-label", float((~used).reshape(rows, -1).all(1).float().mean())
    tokens = tokens_beside(labels, given, ())
    if tokens is None or int(used.sum()) < SUPERVISED_MIN:
        return
    batch, length = tokens.shape
    beside, counted = labels.reshape(batch, -1), used.reshape(batch, -1)
    width = beside.shape[1]
    if not length - SHIFTS <= width <= length or width < 2 or len(torch.unique(beside[counted])) < KINDS_MIN:
        return
    shares = shares_equal(beside, tokens, counted)
    shift = next((at for at, share in enumerate(shares) if share > ALIGNED), None)
    if shift is not None:
        yield "label-shift", float(shift)
    if (found := padding_of(tokens)) is not None:
        pad, _ = found
        filled = (beside == pad) & (tokens[:, :width] == pad) & counted
        yield "padding-share", float(filled.sum()) / float(counted.sum())
    seen = [weight for part in attention if (weight := _next_seen(part, counted, length)) is not None]
    if shift is not None and seen:
        yield "next-place-seen", min(seen)
        yield "causal", float(min(seen) == 0.0)


def _next_seen(part: Tensor | bool, counted: Tensor, length: int) -> float | None:
    """The mean weight that places with a label give to the next one; None of an attention over something else."""
    if isinstance(part, bool):
        return 0.0 if part else 1.0
    if part.shape[-1] != length - 1:
        return None
    places = part.reshape(-1, part.shape[-1]).float().mean(0)
    here = counted[:, : length - 1].any(0)
    here = torch.nn.functional.pad(here, (0, length - 1 - here.shape[0]))
    return float(places[here].mean()) if bool(here.any()) else None


def padding_of(tokens: Tensor) -> tuple[int, Tensor] | None:
    """The id that rows [rows, length] are filled up with, and where it stands at their ends; None where none is."""
    ends = tokens[:, -1]
    runs = (tokens[:, -PAD_RUN:] == ends[:, None]).all(1)
    if not bool(runs.any()):
        return None
    pad = int(ends[runs].mode().values)
    padded = tokens == pad
    trailing = padded.flip(1).cumprod(1).flip(1).bool()
    lengths = trailing.sum(1)
    # A row of padding only is not padded: its text repeats one token.
    if int(((lengths >= PAD_RUN) & (lengths < tokens.shape[1])).sum()) < 2:
        return None
    if int(trailing.sum()) < PAD_AT_END * int(padded.sum()):
        return None  # a token of the text, such as a space, that happens to end some rows
    return pad, trailing
