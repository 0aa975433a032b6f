"""Tells whether the id that ends every row is never a label, while the token before it is one.

A row may end in padding of its own. It is the end of the text that is masked where padding has its id, which the
tokenizers of transformers tell; of other scripts it is read in the source (``end_padding``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.loss_graph import Likelihood
from steadytrain.capture.looks.token_inputs import tokens_beside
from steadytrain.core.living_objects import living

ROWS_MIN, PLACES_MIN = 2, 4
ALIGNED = 0.99


@torch.no_grad()
def end_rows(one: Likelihood, given: Sequence[Tensor], looked_up: Sequence[Tensor]) -> Iterator[tuple[str, float]]:
    """``end-unsupervised`` is the share of rows whose last token before the end is a label and whose end is none; 0 if
    the end is a label anywhere. ``end-id`` is its id. ``tokenizer-pads`` is 1 where a tokenizer of the process pads
    with it.

    The end is the id that is last in most rows. Labels must be the next tokens. Rows that are all filled up with an id
    that the attention mask hides from its first place on have no end.
    """
    labels = one.targets
    tokens = tokens_beside(labels, given, looked_up) if not labels.is_floating_point() and labels.numel() else None
    if tokens is None or tokens.shape[0] < ROWS_MIN or tokens.shape[1] < PLACES_MIN:
        return
    beside = labels.reshape(tokens.shape[0], -1)
    used = beside != one.ignored
    width = min(beside.shape[1], tokens.shape[1] - 1)
    if width < tokens.shape[1] - 2 or not bool(used.any()):
        return
    used, following = used[:, :width], tokens[:, 1 : width + 1]
    if float((beside[:, :width] == following)[used].float().mean()) < ALIGNED:
        return
    end = int(tokens[:, -1].mode().values)
    if bool((used & (following == end)).any()):
        yield "end-unsupervised", 0.0
        return
    text = tokens != end
    last = text.shape[1] - 1 - text.flip(1).int().argmax(1)  # of the text of each row
    trailing = text.shape[1] - 1 - last
    reached = text.any(1) & (last >= 1) & (trailing >= 1)
    taught = used.gather(1, (last - 1).clamp(0, width - 1)[:, None])[:, 0]
    # Text that touches the right edge, with padding in front, ends there; so may the longest of rows.
    ended = reached & taught
    if int(trailing.min()) > 1 and _hidden(given, tokens, last):
        return
    yield "end-unsupervised", float(ended.float().mean())
    yield "end-id", float(end)
    if bool(ended.all()) and _tokenizer_pads(end):
        yield "tokenizer-pads", 1.0


def _hidden(given: Sequence[Tensor], tokens: Tensor, last: Tensor) -> bool:
    """Whether an attention mask among ``given`` ends with the text of each row: what follows is all padding."""
    for mask in given:
        if mask.shape == tokens.shape and bool(((mask == 0) | (mask == 1)).all()) and bool((mask == 0).any()):
            places = mask.to(last.device)
            return not bool(places.gather(1, (last + 1)[:, None]).any())
    return False


def _tokenizer_pads(end: int) -> bool:
    """Whether a tokenizer of transformers has ``end`` for its end and for padding."""
    module = sys.modules.get("transformers.tokenization_utils_base")
    base = getattr(module, "PreTrainedTokenizerBase", None)
    if not isinstance(base, type):
        return False
    tokenizers: list[Any] = living(base)
    return any(one.pad_token_id == end == one.eos_token_id for one in tokenizers)
