"""Replacements for functions of the forward: softer attention, other losses, operations without singular points."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional

from steadytrain.trial_runs.changes import LiveChange, OtherMeasure, at_least, more_than
from steadytrain.trial_runs.function_stand_ins import ATTENTION, DISTANCES, LOSSES, MASKED, SOFTMAX
from steadytrain.trial_runs.launched_script import CannotApplyError, Launched

CLASSES = (functional.cross_entropy, functional.nll_loss)


@final
@dataclass
class AttentionSoftcap(LiveChange):
    """Attention scores s become cap * tanh(s / cap), which bounds them by ``cap``. Masks stay."""

    cap: float
    nothing = "no attention is computed by torch's functions"

    def check(self) -> None:
        more_than("cap", self.cap, 0.0)

    def begin(self, process: Launched) -> None:
        process.functions.replace(ATTENTION, self._attention)
        process.functions.replace(SOFTMAX, self._softmax)

    def _soft(self, scores: Tensor) -> Tensor:
        return torch.where(scores > MASKED, self.cap * torch.tanh(scores / self.cap), scores)

    def _attention(
        self,
        original: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        **kwargs: Any,
    ) -> Tensor:
        self.touch()
        if kwargs.get("enable_gqa"):
            groups = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
        scores = self._soft(query @ key.transpose(-2, -1) * (scale or 1 / math.sqrt(query.shape[-1])))
        if is_causal:
            keep = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~keep, -torch.inf)
        if attn_mask is not None:
            boolean = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, -torch.inf) if boolean else scores + attn_mask
        return functional.dropout(scores.softmax(-1), dropout_p) @ value

    def _softmax(self, original: Any, scores: Tensor, *args: Any, **kwargs: Any) -> Any:
        if scores.dim() < 3:
            return original(scores, *args, **kwargs)
        self.touch()
        return original(self._soft(scores), *args, **kwargs)


@final
@dataclass
class SafeSoftmax(LiveChange):
    """A softmax over minus infinity only returns zeros with zero gradients instead of NaN."""

    nothing = "no softmax has a fully masked row"

    def begin(self, process: Launched) -> None:
        process.functions.replace(SOFTMAX, self._softmax)
        process.functions.replace(ATTENTION, self._attention)

    def _softmax(self, original: Any, scores: Tensor, *args: Any, **kwargs: Any) -> Any:
        dim = kwargs.get("dim", args[0] if args else -1)
        empty = (scores == -torch.inf).all(dim=dim if dim is not None else -1, keepdim=True)
        if not bool(empty.any()):
            return original(scores, *args, **kwargs)
        self.touch()
        return original(scores.masked_fill(empty, 0.0), *args, **kwargs).masked_fill(empty, 0.0)

    def _attention(self, original: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        mask = kwargs.get("attn_mask", args[0] if args else None)
        if not isinstance(mask, Tensor):
            return original(query, key, value, *args, **kwargs)
        empty = (~mask if mask.dtype == torch.bool else mask == -torch.inf).all(dim=-1, keepdim=True)
        if not bool(empty.any()):
            return original(query, key, value, *args, **kwargs)
        self.touch()
        open_mask = mask | empty if mask.dtype == torch.bool else mask.masked_fill(empty, 0.0)
        if "attn_mask" in kwargs:
            kwargs["attn_mask"] = open_mask
        else:
            args = (open_mask, *args[1:])
        return original(query, key, value, *args, **kwargs).masked_fill(empty, 0.0)


@final
@dataclass
class Float64Loss(LiveChange):
    nothing = "no loss function of torch is called"

    def begin(self, process: Launched) -> None:
        def in_float64(original: Any, *args: Any, **kwargs: Any) -> Any:
            first = args[0] if args else None
            if not isinstance(first, Tensor) or not first.is_floating_point():
                return original(*args, **kwargs)
            self.touch()
            wide = [_double(value) for value in args]
            named = {name: _double(value) for name, value in kwargs.items()}
            result = original(*wide, **named)
            return result.to(torch.float32) if isinstance(result, Tensor) else result

        process.functions.replace(LOSSES, in_float64)


@final
@dataclass
class ZLoss(LiveChange):
    """Adds ``weight`` times the mean squared logsumexp of the logits to each cross-entropy."""

    weight: float = 1e-4
    nothing = "no cross-entropy of logits is computed by torch's function"

    def check(self) -> None:
        more_than("weight", self.weight, 0.0)

    def begin(self, process: Launched) -> None:
        def with_z(original: Any, logits: Tensor, *args: Any, **kwargs: Any) -> Any:
            loss = original(logits, *args, **kwargs)
            if process.role != "train" or loss.numel() != 1:
                return loss
            self.touch()
            z = torch.logsumexp(logits.float(), dim=1 if logits.dim() > 1 else 0)
            return loss + self.weight * z.square().mean()

        process.functions.replace((functional.cross_entropy,), with_z)


@final
@dataclass
class LossTermZero(LiveChange):
    """The ``number``-th loss function of a step (from 0) contributes nothing."""

    number: int
    _entry: int = field(default=-1, init=False, repr=False)
    _calls: int = field(default=0, init=False, repr=False)

    def check(self) -> None:
        at_least("number", self.number, 0)

    def begin(self, process: Launched) -> None:
        def counted(original: Any, *args: Any, **kwargs: Any) -> Any:
            if self._entry != process.entry:
                self._entry, self._calls = process.entry, 0
            self._calls += 1
            loss = original(*args, **kwargs)
            if process.role != "train" or self._calls - 1 != self.number:
                return loss
            self.touch()
            return torch.zeros_like(loss).requires_grad_()  # no graph: keeps non-finite values from gradients

        process.functions.replace(LOSSES, counted)

    def gate(self, process: Launched) -> None:
        if self._calls < 2:
            raise CannotApplyError("the loss has only one term from a loss function of torch")


@final
@dataclass
class LossFromLogits(OtherMeasure):
    """A cross-entropy that gets probabilities gets their logarithm as logits, so that the softmax applies once."""

    nothing = "no cross-entropy gets probabilities"

    def begin(self, process: Launched) -> None:
        def unsoftened(original: Any, logits: Tensor, *args: Any, **kwargs: Any) -> Any:
            dim = 1 if logits.dim() > 1 else 0
            sums = logits.detach().float().sum(dim)
            if bool((logits >= 0).all()) and bool(torch.allclose(sums, torch.ones_like(sums), atol=1e-3)):
                self.touch()
                if self.measures(process):
                    logits = logits.clamp_min(torch.finfo(logits.dtype).tiny).log()
            return original(logits, *args, **kwargs)

        process.functions.replace((functional.cross_entropy,), unsoftened)


@final
@dataclass
class MatchShapes(OtherMeasure):
    """If a loss would broadcast its two tensors, the target is reshaped to the shape of the input. So is what has no
    gradient in a difference of [N, 1] and [N].
    """

    nothing = "no loss broadcasts its target"

    def begin(self, process: Launched) -> None:
        def matched(original: Any, values: Tensor, target: Any = None, *args: Any, **kwargs: Any) -> Any:
            if isinstance(target, Tensor) and target.shape != values.shape and target.numel() == values.numel():
                self.touch()
                if self.measures(process):
                    target = target.reshape(values.shape)
            return original(values, target, *args, **kwargs)

        process.functions.replace(DISTANCES, matched)

        def apart(original: Any, one: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(one, Tensor) and isinstance(other, Tensor) and one.requires_grad != other.requires_grad:
                count = one.numel()
                if count > 1 and {tuple(one.shape), tuple(other.shape)} == {(count, 1), (count,)}:
                    self.touch()
                    if self.measures(process) and one.requires_grad:
                        other = other.reshape(one.shape)
                    elif self.measures(process):
                        one = one.reshape(other.shape)
            return original(one, other, *args, **kwargs)

        process.functions.replace((torch.sub, Tensor.sub, Tensor.__sub__), apart)


@final
@dataclass
class IgnoreLabel(LiveChange):
    """A cross-entropy ignores targets equal to ``label`` (the pad token)."""

    label: int
    nothing = "no target has this label"

    def begin(self, process: Launched) -> None:
        def without(original: Any, logits: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
            if target.is_floating_point() or not bool((target == self.label).any()):
                return original(logits, target, *args, **kwargs)
            self.touch()
            ignored = kwargs.get("ignore_index", -100)
            return original(logits, target.masked_fill(target == self.label, ignored), *args, **kwargs)

        process.functions.replace(CLASSES, without)


@final
@dataclass
class LeakyUnits(LiveChange):
    """ReLU passes on ``slope`` times negative values, so that dead units get gradients again."""

    slope: float = 0.01
    nothing = "no ReLU is called"

    def check(self) -> None:
        more_than("slope", self.slope, 0.0)

    def begin(self, process: Launched) -> None:
        def leaky(original: Any, values: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            self.touch()
            return functional.leaky_relu(values, self.slope)

        process.functions.replace((functional.relu, torch.relu, Tensor.relu), leaky)


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


@final
@dataclass
class NoDropout(LiveChange):
    """Dropout keeps every value."""

    nothing = "nothing is dropped in training steps"

    def begin(self, process: Launched) -> None:
        def kept(original: Any, value: Tensor, *args: Any, **kwargs: Any) -> Any:
            share = kwargs.get("p", args[0] if args else 0.5)
            if not kwargs.get("training", args[1] if len(args) > 1 else True) or not share:
                return original(value, *args, **kwargs)
            self.touch()
            return value

        process.functions.replace([functional.dropout], kept)


@final
@dataclass
class NoSmoothing(LiveChange):
    """Cross-entropies have no label smoothing."""

    nothing = "no cross-entropy smooths its labels"

    def begin(self, process: Launched) -> None:
        def sharp(original: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("label_smoothing"):
                kwargs["label_smoothing"] = 0.0
                self.touch()
            return original(*args, **kwargs)

        process.functions.replace([functional.cross_entropy], sharp)
