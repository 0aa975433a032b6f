"""Does padding change the output at real tokens?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from steadytrain.checks.subject.model_calls import last_call
from steadytrain.checks.subject.model_check import (
    CannotError,
    Check,
    Cost,
    Outcome,
    Subject,
    failed,
    not_run,
    passed,
    tensors_of,
)
from steadytrain.checks.subject.short_training import evaluating, few_rows
from steadytrain.core.plugins import threshold

PADDED = 3


@final
@dataclass(frozen=True)
class PaddingInvariance(Check):
    """The model's output at a token does not depend on the padding around it.

    Means:
        The check runs a row with and without its padding, or, if no row has any, with some added on the right. The
        outputs at real tokens must be the same. If they are not, the model reads the padding: what it learns depends on
        the other rows of the batch, and its output changes when a row runs alone.

    Causes:
        - an attention mask that is not passed on, or is inverted (1 for padding, where it means a token)
        - padding on the left with positions that count the padding
        - a pooling or a norm over all positions, padding included

    Next:
        1. Follow the attention mask into the attention: does it arrive, and does it hide the padding?
        2. With padding on the left, start positions at the first token; or pad on the right for training.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "mistakes of padding side and mask in fine-tuning scripts: chosen tolerance"

    same_share: float = threshold(1e-3, "of the largest output: other kernels for other lengths stay below it")

    def inspect(self, subject: Subject) -> Outcome:
        batch = few_rows(subject.batches[0], 64)
        with evaluating(subject.model), torch.no_grad():
            module, args, kwargs = last_call(subject, batch)
            mask = kwargs.get("attention_mask")
            ids = kwargs.get("input_ids", args[0] if args else None)
            if not isinstance(mask, Tensor) or not isinstance(ids, Tensor) or mask.shape != ids.shape or ids.dim() != 2:
                return not_run("the model gets no input_ids with an attention_mask of the same shape")
            if "decoder_input_ids" in kwargs:
                return not_run("the model has a decoder with a length of its own")
            row, kept, how = _row(mask)
            plain = {name: value for name, value in kwargs.items() if "label" not in name}
            rest = () if args and args[0] is ids else args
            plain["input_ids"] = ids
            alone = _cut(plain, ids, row, kept)
            if how == "none":
                other, at = _longer(alone, int(ids.min())), torch.arange(len(kept), device=ids.device)
            else:
                other, at = _cut(plain, ids, row, torch.arange(ids.shape[1], device=ids.device)), kept
            if _is_encoder_decoder(module):
                return not_run("the model has a decoder with a length of its own")
            one = _by_position(_output(module, rest, alone), len(kept))
            two = _by_position(_output(module, rest, other), other["input_ids"].shape[1])
        worst = float((one - two[:, at]).abs().max())
        largest = float(one.abs().max())
        numbers: dict[str, Any] = {
            "difference": worst,
            "largest": largest,
            "row": row,
            "padding": how,
            "tokens": len(kept),
        }
        where = "with padding added on the right" if how == "none" else f"with its padding on the {how}"
        if not worst <= self.same_share * max(largest, 1e-12):
            return failed(f"outputs at real tokens change by {worst:.2g} {where}", **numbers)
        return passed(f"outputs at real tokens are the same {where}, to {worst:.1g} of {largest:.2g}", **numbers)


def _row(mask: Tensor) -> tuple[int, Tensor, str]:
    """A row with padding, the positions of its tokens, and the side of the padding: ``left``, ``right`` or ``none``."""
    for row in range(len(mask)):
        kept = torch.nonzero(mask[row]).flatten()
        if 0 < len(kept) < mask.shape[1]:
            return row, kept, "left" if not bool(mask[row, 0]) else "right"
    return 0, torch.arange(mask.shape[1], device=mask.device), "none"


def _cut(kwargs: Mapping[str, Any], ids: Tensor, row: int, kept: Tensor) -> dict[str, Any]:
    """The arguments for one row, at some positions."""
    cut = {}
    for name, value in kwargs.items():
        if isinstance(value, Tensor) and value.dim() >= 2 and value.shape[:2] == ids.shape:
            cut[name] = value[row : row + 1, kept]
        elif isinstance(value, Tensor) and value.dim() > 0 and len(value) == len(ids):
            cut[name] = value[row : row + 1]
        else:
            cut[name] = value
    return cut


def _longer(kwargs: Mapping[str, Any], filler: int) -> dict[str, Any]:
    """The arguments for a row, padded on the right."""
    longer = dict(kwargs)
    shape = kwargs["input_ids"].shape
    for name, value in kwargs.items():
        if isinstance(value, Tensor) and value.shape == shape:
            if name == "position_ids":
                more = value[:, -1:] + torch.arange(1, PADDED + 1, device=value.device)
            else:
                more = torch.full((1, PADDED), filler if name == "input_ids" else 0, device=value.device)
            longer[name] = torch.cat([value, more.to(value.dtype)], dim=1)
    return longer


def _output(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the model gives without labels. A trainer may have put a forward in place that needs them (TRL's does)."""
    try:
        return module(*args, **kwargs)
    except Exception as error:
        raise CannotError(f"the model cannot be called without its labels: {type(error).__name__}") from None


def _by_position(output: Any, length: int) -> Tensor:
    found = [t for t in tensors_of([output]) if t.is_floating_point() and t.dim() == 3 and t.shape[1] == length]
    if not found:
        raise CannotError("the model gives no output at each position")
    return found[0].float()


def _is_encoder_decoder(module: Any) -> bool:
    return bool(getattr(getattr(module, "config", None), "is_encoder_decoder", False))
