"""Counts the elements that an optimizer trains, where these are biases or gains of norms; finds frozen adapters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import torch
from torch import nn

from steadytrain.capture.hooks.model_discovery import named_places
from steadytrain.capture.looks.held_parameters import is_sharded
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.torch_private import NORMS, PARAMETERS

SHARE_MAX = 0.02
"""Largest share of the elements that biases and gains have in usual models; above it nothing is reported."""


ADAPTER = re.compile(
    r"(?i)(^|[._])(lora(_?[ab]|_\w+)?|adapters?|ia3\w*|dora\w*|soft_?prompts?|prompt_embeddings?)([._]|$)"
)
"""Names of what is put into a frozen model to be trained."""


def trained_rows(stream: Stream, streams: Iterable[Stream]) -> Iterator[tuple[str, float]]:
    """``trained-elements:KIND`` and ``all-elements:model`` count elements of the models of ``stream``.

    KIND is ``biases``, ``norms`` or ``biases and norms``. There are no rows where other parameters are trained too.
    """
    if is_sharded(stream.parameters):
        return
    held = {id(one) for other in streams for one in other.parameters}
    trained, total, kinds, seen = 0, 0, set(), set()
    for root in stream.roots():
        for _, module in named_places(root):
            for name, one in PARAMETERS.of(module).items():
                if one is None or id(one) in seen:
                    continue
                seen.add(id(one))
                total += one.numel()
                if one.requires_grad and id(one) in held:
                    trained += one.numel()
                    kinds.add(_kind(module, name))
    if trained and "" not in kinds and trained <= SHARE_MAX * total:
        yield f"trained-elements:{' and '.join(sorted(kinds))}", float(trained)
        yield "all-elements:model", float(total)


def adapter_rows(stream: Stream) -> Iterator[tuple[str, float]]:
    """``frozen-adapters:NAME``: how many parameters of adapters there are, by their names, if all of them are frozen.

    NAME is that of the first. Nothing where any of them can be trained, as where one of several adapters is in use.
    """
    named = {
        f"{place}.{name}" if place else name: one
        for root in stream.roots()
        for place, module in named_places(root)
        for name, one in PARAMETERS.of(module).items()
        if one is not None and ADAPTER.search(f"{place}.{name}")
    }
    if len(named) > 1 and not any(one.requires_grad for one in named.values()):
        yield f"frozen-adapters:{next(iter(named))}", float(len(named))


def frozen_tables(stream: Stream) -> Iterator[tuple[str, float]]:
    """``frozen-table:NAME``: the rows of the largest embedding of the models of ``stream``, if it is frozen."""
    tables = {
        place: module.weight
        for root in stream.roots()
        for place, module in named_places(root)
        if isinstance(module, nn.Embedding)
    }
    name = max(tables, key=lambda place: len(tables[place]), default="")
    if tables and not tables[name].requires_grad:
        yield f"frozen-table:{name or 'model'}", float(len(tables[name]))


def _kind(module: nn.Module, name: str) -> str:
    if isinstance(module, (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, NORMS.get())) or "Norm" in type(module).__name__:
        return "norms"
    return "biases" if "bias" in name else ""


def descent_rows(stream: Stream) -> Iterator[tuple[str, float]]:
    """``descent:CLASS`` is how far a gradient moves its parameter in the end, as a multiple of the rate: 1 / (1 -
    momentum). Only of SGD alone, whose step is as long as its gradient."""
    if len(stream.optimizers) == 1 and type(stream.optimizers[0]) is torch.optim.SGD:
        momenta = [float(one.get("momentum") or 0.0) for one in stream.optimizers[0].param_groups]
        yield "descent:SGD", 1.0 / (1.0 - min(max(momenta), 0.999))
