"""Compares the labels of one loss with the model's input tokens and with what its attention sees.

Not here: which of the measures are faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from steadytrain.capture.looks.loss_graph import Likelihood, LossGraph
from steadytrain.capture.looks.masked_ends import end_rows
from steadytrain.capture.looks.token_inputs import SHIFTS, padding_of, same_ids, shares_equal, tokens_beside

ALIGNED = 0.99
SUPERVISED_MIN = 8
KINDS_MIN = 4
"""Labels with fewer distinct values match tokens by chance."""

LENGTH_MIN = 3
"""Places of a text; one id or two say of which kind a row is."""

PARTS_MIN = 3
"""Square attentions of a model that reads two texts: of each to itself, and of one to the other."""


@torch.no_grad()
def label_rows(
    one: Likelihood, given: Sequence[Tensor], rows: int, graph: LossGraph, *, has_recurrent: bool = False
) -> Iterator[tuple[str, float]]:
    """Measures of one likelihood, by name.

    ``rows-without-label`` is the share of the batch's ``rows`` without a label. The other measures need labels that
    belong to one of the integer inputs ``given`` ([rows, length]); those that an embedding of ``graph`` looked up come
    first. ``label-shift`` is the shift at which ``labels[i] == tokens[i + shift]``. ``padding-share`` is the share of
    the labels that are padding where the token is padding too.
    ``next-place-seen`` is the smallest attention weight, over the model's square attentions, from places with a label
    to the next place. If the model reads two texts of one length, either may be attended to: there is none, unless
    encoder, decoder and what joins them are all there, no layer is recurrent, and not one of them is causal.
    ``causal`` is 1 if that weight is 0, else 0. ``other-text`` is 1 where each label is the token at its own place,
    the model reads that, and another text, too. Those of ``end_rows`` come with them.
    """
    labels = one.targets
    if labels.is_floating_point() or not labels.numel():
        return
    used = labels != one.ignored
    if rows > 1 and labels.numel() % rows == 0 and labels.numel() > rows:
        yield "rows-without-label", float((~used).reshape(rows, -1).all(1).float().mean())
    tokens = tokens_beside(labels, given, graph.looked_up)
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
        shift -= min(shift, one.dropped)  # `scores[:, 1:]` are those of the places from the second on
        yield "label-shift", float(shift)
        read = any(same_ids(ids, tokens) for ids in graph.looked_up)  # labels that a model shifts itself are not
        if shift == 0 and read and any(_is_other(ids, tokens) for ids in graph.looked_up):
            yield "other-text", 1.0
    yield from end_rows(one, given, graph.looked_up)
    if (found := padding_of(tokens)) is not None:
        pad, _ = found
        filled = (beside == pad) & (tokens[:, :width] == pad) & counted
        yield "padding-share", float(filled.sum()) / float(counted.sum())
    seen = [weight for part in graph.attention if (weight := _next_seen(part, counted, length)) is not None]
    two = bool(seen) and _other_sequence(graph.looked_up, tokens)
    whole = len(seen) >= PARTS_MIN and not has_recurrent and min(seen) > 0.0
    if shift is not None and seen and (whole or not two):
        yield "next-place-seen", min(seen)
        yield "causal", float(min(seen) == 0.0)


def _other_sequence(looked_up: Sequence[Tensor], tokens: Tensor) -> bool:
    """Whether the model reads another text of the same length: its attention to that one is square, too, and has no
    mask."""
    return any(ids.shape == tokens.shape and _is_other(ids, tokens) for ids in looked_up)


def _is_other(ids: Tensor, tokens: Tensor) -> bool:
    """Whether ``ids`` are another text than ``tokens``. Positions (equal rows) and kinds of token (few values) are
    none."""
    if ids.dim() != 2 or len(ids) != len(tokens) or ids.shape[1] < LENGTH_MIN:
        return False
    if same_ids(ids, tokens):
        return False
    return bool((ids != ids[:1]).any()) and len(torch.unique(ids)) >= KINDS_MIN


def _next_seen(part: Tensor | bool, counted: Tensor, length: int) -> float | None:
    """The mean attention weight from places with a label to the next place; None if ``part`` has another length."""
    if isinstance(part, bool):
        return 0.0 if part else 1.0
    if part.shape[-1] != length - 1:
        return None
    here = counted[:, : length - 1]
    here = torch.nn.functional.pad(here, (0, length - 1 - here.shape[1]))
    if part.dim() > 2 and part.shape[0] == len(here):  # a prefix that is read from both sides differs by row
        places = part.reshape(len(here), -1, length - 1).float().mean(1)
    else:
        places, here = part.reshape(-1, length - 1).float().mean(0), here.any(0)
    return float(places[here].mean()) if bool(here.any()) else None
