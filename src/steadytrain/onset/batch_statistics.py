"""Statistics of the inputs of the model and of its loss functions, and the loss of each row.

The loss functions of ``torch.nn.functional`` are wrapped before the script imports them. A wrapper calls the original,
and then once more without reduction, under ``no_grad``. It draws no random number and changes nothing that the script
gets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from steadytrain.onset.measures import Key

LOSSES = (
    "cross_entropy",
    "nll_loss",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
)
IGNORED_LABEL = -100
INPUTS_MAX = 16
TOKENS_MAX = 1 << 20
"""Larger ids are not counted as tokens: the rarity table would need this size."""


class Batches:
    """The measurements of the current step. :meth:`take` returns them and starts the next step."""

    def __init__(self) -> None:
        self.active = False
        self._measured: dict[Key, float] = {}
        self._counts: dict[str, Tensor] = {}
        self._rows = 0

    def watch(self) -> None:
        """Wraps the loss functions for the life of the process."""
        for name in LOSSES:
            setattr(functional, name, self._wrapped(name, getattr(functional, name)))

    def call(self, args: Any, kwargs: Any) -> None:
        """Measures the arguments of the next model call."""
        for name, tensor in _named(args, kwargs):
            if tensor.dim() and self._rows == 0:
                self._rows = tensor.shape[0]
            self._describe("input", name, tensor)

    def take(self) -> dict[Key, float]:
        measured, self._measured, self._rows = self._measured, {}, 0
        return measured

    def _wrapped(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def loss(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if self.active and not torch.compiler.is_compiling() and torch.is_grad_enabled():
                self.active = False
                try:
                    with torch.no_grad():
                        self._loss(name, original, args, kwargs)
                except (TypeError, ValueError, RuntimeError):
                    pass  # an unusual call: the step has no row losses
                finally:
                    self.active = True
            return result

        return loss

    def _loss(self, name: str, original: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> None:
        given = {"input": args[0], "target": args[1], **dict(kwargs)} if len(args) > 1 else dict(kwargs)
        if len(args) > 2:
            return
        target = given["target"]
        if name in ("cross_entropy", "nll_loss") and not target.is_floating_point():
            kept = target[target != given.get("ignore_index", IGNORED_LABEL)]
            self._describe("target", f"of {name}", kept)
        else:
            self._describe("target", f"of {name}", target)
        rows = original(**{**given, "reduction": "none"}).float()
        if not rows.numel():
            return
        whole = rows.shape[0] if rows.dim() > 1 else rows.numel()
        # The tokens of a text belong to one batch row, and their losses are averaged in it.
        count = self._rows if self._rows and rows.numel() % self._rows == 0 else whole
        of_rows = rows.reshape(count, -1).mean(1)
        total = float(of_rows.sum())
        self._keep(Key("row_loss_max", ""), float(of_rows.max()))
        if len(of_rows) > 1 and total > 0:
            self._keep(Key("row_loss_share", ""), float(of_rows.max()) / total)

    def _describe(self, what: str, name: str, tensor: Tensor) -> None:
        if not tensor.numel() or tensor.is_complex() or tensor.dtype == torch.bool:
            return
        if tensor.is_floating_point():
            values = tensor.detach().float()
            self._keep(Key(f"{what}_rms", name), float(values.square().mean().sqrt()))
            self._keep(Key(f"{what}_abs_max", name), float(values.abs().max()))
            return
        ids = tensor.detach().flatten().long().cpu()
        if int(ids.min()) < 0 or int(ids.max()) >= TOKENS_MAX or bool((ids == ids[0]).all() and ids.numel() < 2):
            return
        counts = torch.bincount(ids)
        self._keep(Key(f"{what}_commonest_share", name), float(counts.max()) / ids.numel())
        known = self._counts.get(f"{what} {name}", torch.zeros(0))
        if len(known) < len(counts):
            known = torch.cat([known, torch.zeros(len(counts) - len(known))])
        if known.sum() > 0:
            share = (known[ids] + 1) / (known.sum() + len(known))
            self._keep(Key(f"{what}_rarity", name), float(-share.log().mean()))
        known[: len(counts)] += counts
        self._counts[f"{what} {name}"] = known

    def _keep(self, key: Key, value: float) -> None:
        """The largest value over all micro-batches counts for the step."""
        self._measured[key] = max(value, self._measured.get(key, value))


def _named(args: Any, kwargs: Any) -> list[tuple[str, Tensor]]:
    found: list[tuple[str, Tensor]] = []

    def walk(value: Any, name: str) -> None:
        if isinstance(value, Tensor):
            found.append((name, value))
        elif isinstance(value, Mapping):
            for key, entry in value.items():
                walk(entry, f"{name}.{key}".lstrip("."))
        elif isinstance(value, (list, tuple)):
            for number, entry in enumerate(value):
                walk(entry, f"{name}.{number}".lstrip("."))

    walk(args, "")
    walk(kwargs, "")
    return found[:INPUTS_MAX]
