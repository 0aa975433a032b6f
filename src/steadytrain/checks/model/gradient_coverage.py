"""Which parameters get gradients, and which cannot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, passed, warned
from steadytrain.checks.subject.short_training import few_rows
from steadytrain.core.plugins import threshold

NAMES_SHOWN = 4
STEP_RATE = 1e-3
ROWS_MAX = 8


@final
@dataclass(frozen=True)
class GradientCoverage(Check):
    """Every trainable parameter is in one optimizer and gets a gradient.

    Means:
        Over the first batches, with small steps between them on a copy, each parameter of the optimizer must get a
        finite, nonzero gradient at least once. The check also names parameters that require gradients but are in no
        optimizer, are in two groups, or hold no sensible values.

    Causes:
        - the optimizer was created before the model was completed, moved or wrapped
        - `.detach()`, `.item()`, `torch.no_grad()` or a cast on the way from a parameter to the loss
        - everything was frozen and the adapter was frozen with it; a LoRA target that matches no layer
        - a LoRA adapter on weights that are all zero: there is nothing to adapt
        - a layer that forward does not call; weights from `torch.empty` that were never initialised

    Next:
        1. Look at the named parameters: should they be trained? If not, set `requires_grad_(False)` on them.
        2. Create the optimizer last, from `model.parameters()`, and count its parameters.
        3. Follow the graph from the loss back: `loss.grad_fn` and `next_functions` end where it is cut.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "trl#3926 (adapter frozen), needle#53 (LoRA on zero weights), Automodel PR1527 (detached)"

    batches_max: int = threshold(4, "batches, with a small step after each")
    weight_max: float = threshold(1e6, "a larger weight was never initialised; real models are far below")

    def inspect(self, subject: Subject) -> Outcome:
        named = dict(subject.model.named_parameters())
        held = _times_held(subject)
        trained = {
            name: p for name, p in named.items() if p.requires_grad and (id(p) in held or not subject.optimizers)
        }
        faults = _faults_of_values(subject.model, named, self.weight_max)
        if not trained:
            frozen = sum(not p.requires_grad for p in named.values())
            return failed(
                f"nothing is trained: {frozen} of {len(named)} parameters are frozen, and no optimizer holds another",
                parameters=len(named),
                frozen=frozen,
            )
        seen, bad, loss_has_graph = self._gradients(subject, trained)
        if not loss_has_graph:
            return failed("the loss does not depend on any parameter: its graph was cut", parameters=len(named))
        without = sorted(set(trained) - seen)
        outside = sorted(n for n, p in named.items() if p.requires_grad and subject.optimizers and id(p) not in held)
        twice = sorted(name for name, p in named.items() if held.get(id(p), 0) > 1)
        numbers: dict[str, Any] = {
            "parameters": len(named),
            "trained": len(trained),
            "frozen": sum(not p.requires_grad for p in named.values()),
            "without_gradient": without,
            "not_finite": sorted(bad),
            "in_no_optimizer": outside,
            "in_two_groups": twice,
        }
        if len(without) == len(trained):
            faults.append(f"none of {len(trained)} trained parameters gets a gradient")
        elif without and not all("expert" in name for name in without):
            faults.append(f"{len(without)} of {len(trained)} trained parameters get no gradient: {_some(without)}")
        if bad:
            faults.append(f"gradients that are not finite: {_some(sorted(bad))}")
        if twice:
            faults.append(f"in two groups or optimizers: {_some(twice)}")
        whole = _whole_children(subject.model, outside)
        if outside and not whole:
            faults.append(f"{len(outside)} parameters want gradients and are in no optimizer: {_some(outside)}")
        if faults:
            return failed("; ".join(faults), **numbers)
        if outside:
            return warned(
                f"all of {_some(whole)} wants gradients and is in no optimizer",
                meaning="Gradients are computed that nobody applies. If this part is meant to stay as it is, "
                "requires_grad_(False) saves their memory; if not, it was forgotten.",
                **numbers,
            )
        if without:
            return warned(f"{len(without)} experts got no token in these batches: {_some(without)}", **numbers)
        return passed(f"all {len(trained)} trained parameters get gradients; {numbers['frozen']} are frozen", **numbers)

    def _gradients(self, subject: Subject, trained: Mapping[str, Tensor]) -> tuple[set[str], set[str], bool]:
        """The parameters with a gradient in any batch, those with a non-finite one; False if a loss had no graph."""
        seen: set[str] = set()
        bad: set[str] = set()
        optimizer = torch.optim.Adam(list(trained.values()), lr=STEP_RATE)
        for step in range(max(2, min(self.batches_max, len(subject.batches)))):
            if seen and subject.time_left() < 0 and step > 1:
                break
            loss = subject.loss(few_rows(subject.batches[step % len(subject.batches)], ROWS_MAX))
            if not loss.requires_grad:
                return seen, bad, False
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for name, parameter in trained.items():
                gradient = parameter.grad
                if gradient is None:
                    continue
                size = float(gradient.detach().abs().max()) if gradient.numel() else 0.0
                if not math.isfinite(size):
                    bad.add(name)
                elif size > 0.0:
                    seen.add(name)
            if len(seen) == len(trained) or bad:
                break
            optimizer.step()
        return seen | bad, bad, True


def _times_held(subject: Subject) -> dict[int, int]:
    held: dict[int, int] = {}
    for optimizer in subject.optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                held[id(parameter)] = held.get(id(parameter), 0) + 1
    return held


def _faults_of_values(model: nn.Module, named: Mapping[str, Tensor], weight_max: float) -> list[str]:
    """Values that no initialisation produces, and adapters on weights that are all zero."""
    sizes = {
        name: float(p.detach().abs().max()) if p.numel() and p.is_floating_point() else 0.0 for name, p in named.items()
    }
    odd = [name for name, size in sizes.items() if not size <= weight_max]
    faults = [f"values that were never initialised: {_some(odd)}"] if odd else []
    empty = []
    for path, module in model.named_modules():
        base = getattr(module, "base_layer", None)
        weight = getattr(base, "weight", None)
        if hasattr(module, "lora_A") and isinstance(weight, Tensor) and not bool(weight.detach().any()):
            empty.append(path)
    if empty:
        faults.append(f"LoRA on weights that are all zero: {_some(empty)}")
    zero = [n for n, p in named.items() if p.dim() >= 2 and sizes[n] == 0.0 and not p.requires_grad and "lora" not in n]
    if zero and not empty:
        faults.append(f"frozen and all zero: {_some(zero)}")
    return faults


def _whole_children(model: nn.Module, names: Sequence[str]) -> list[str]:
    """The direct children of ``model`` whose parameters are exactly ``names``; empty if only parts match."""
    outside = set(names)
    whole, covered = [], set()
    for child, module in model.named_children():
        own = {f"{child}.{name}" for name, _ in module.named_parameters()}
        if own and own <= outside:
            whole.append(child)
            covered |= own
    return whole if covered == outside else []


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
