"""Number formats of weights, gradients, state and loss, and whether rounding loses updates."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from steadytrain.checks.subject.model_check import CannotError, Check, Cost, Outcome, Subject, failed, passed, warned
from steadytrain.checks.subject.own_steps import at_peak, few_rows
from steadytrain.core.plugins import threshold

LOW = (torch.float16, torch.bfloat16)
_TABLES = ("inv_freq", "freqs", "rotary", "cos_", "sin_", "position", "pos_emb", "timescale", "alibi")
_LOSSES_SHOWN = 3


@final
@dataclass(frozen=True)
class PrecisionAudit(Check):
    """Weights, positions and sums have enough bits.

    Means:
        A weight in bfloat16 has 8 bits: an update that is 256 times smaller than the weight rounds to nothing, and the
        loss silently stays constant. In float16 Adam's epsilon of 1e-8 is zero, and values above 65,504 are infinite.
        In bfloat16 positions beyond 256 are no longer distinct. A model trained in bfloat16 can have activations that
        float16 cannot hold.

    Causes:
        - a model loaded and trained in bfloat16 or float16, without a float32 copy of its weights
        - ``model.half()`` or ``.to(dtype)`` that casts tables of positions too
        - mixed precision in float16 for a model that was pretrained in bfloat16
        - a loss or softmax computed outside autocast in half precision

    Next:
        1. Keep the weights in float32 and use ``torch.autocast(dtype=torch.bfloat16)``.
        2. If weights must be in bfloat16: an optimizer with stochastic rounding, or a float32 copy.
        3. Cast logits to float32 before the loss: ``logits.float()``.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "pytorch #120376, torchtune #2254, CLIP #40, gpt-neox #1003, transformers #25681, #5651"

    lost_share: float = threshold(0.5, "this share of weights that get a gradient but no change fails")
    lost_told: float = threshold(0.2, "this share warns")

    def inspect(self, subject: Subject) -> Outcome:
        model = subject.model
        trained = subject.trainable() or {name: p for name, p in model.named_parameters() if p.requires_grad}
        autocast: set[torch.dtype] = set()
        with _autocast_seen(model, autocast), _Softmax() as softmax:
            look = subject.look(few_rows(subject)[0])
        dtypes = Counter(str(p.dtype).removeprefix("torch.") for p in trained.values())
        numbers: dict[str, Any] = {
            "weights": dict(dtypes),
            "autocast": sorted(str(dtype).removeprefix("torch.") for dtype in autocast),
            "loss": str(look.loss.dtype).removeprefix("torch."),
            "scaler": subject.scaler is not None,
        }
        faults, oddities = self._updates(subject, trained, numbers)
        faults += _scaler(subject, trained)
        faults += _tables(model)
        low_losses = [c.function for c in look.loss_calls if isinstance(c.result, Tensor) and c.result.dtype in LOW]
        if low_losses or look.loss.dtype in LOW:
            what = ", ".join(dict.fromkeys(low_losses[:_LOSSES_SHOWN])) or "the loss"
            oddities.append(f"{what} is computed in half precision")
        if softmax.low:
            oddities.append(f"softmax is computed in float16, {softmax.low} times in a forward")
        oddities += _made_in_other(subject, autocast)
        if faults:
            return failed("; ".join([*faults, *oddities]), **numbers)
        if oddities:
            return warned("; ".join(oddities), **numbers)
        told = ", ".join(f"{count} tensors in {dtype}" for dtype, count in dtypes.most_common())
        under = f", autocast in {numbers['autocast'][0]}" if autocast else ""
        return passed(f"{told}{under}: no update is lost", **numbers)

    def _updates(
        self, subject: Subject, trained: dict[str, Tensor], numbers: dict[str, Any]
    ) -> tuple[list[str], list[str]]:
        """Test a step at the highest learning rate, in the dtypes of weights and state."""
        low = {name: p for name, p in trained.items() if p.dtype in LOW}
        epsilons = _epsilons(subject, low)
        if not low:
            return epsilons, []
        try:
            optimizer = at_peak(subject)
        except CannotError as why:
            numbers["lost_updates"] = str(why)
            return epsilons, [f"{len(low)} of {len(trained)} trained tensors are in half precision"]
        before = {name: p.detach().clone() for name, p in low.items()}
        optimizer.zero_grad(set_to_none=True)
        subject.loss(few_rows(subject)[0]).backward()  # type: ignore[no-untyped-call]
        moving = {name: p.grad.detach() != 0 for name, p in low.items() if p.grad is not None}
        optimizer.step()
        if _has_master_copy(optimizer):
            numbers["lost_updates"] = "the optimizer keeps a copy in float32"
            return epsilons, []
        count = sum(int(places.sum()) for places in moving.values())
        lost = sum(int(((low[name].detach() == before[name]) & places).sum()) for name, places in moving.items())
        share = lost / max(count, 1)
        numbers |= {"lost_updates": share, "state": _state_dtypes(optimizer)}
        dtype = str(next(iter(low.values())).dtype).removeprefix("torch.")
        told = f"{share:.0%} of the updates to weights in {dtype} are lost at the highest learning rate"
        if share >= self.lost_share:
            return [*epsilons, told], []
        return epsilons, [told] if share >= self.lost_told else []


def _epsilons(subject: Subject, low: dict[str, Tensor]) -> list[str]:
    found = []
    held = {id(p): p.dtype for p in low.values()}
    for optimizer in subject.optimizers:
        for group in optimizer.param_groups:
            epsilon = group.get("eps")
            dtypes = {held[id(p)] for p in group["params"] if id(p) in held}
            if isinstance(epsilon, float) and torch.float16 in dtypes and epsilon > 0:
                stored = float(torch.tensor(epsilon, dtype=torch.float16))
                if stored == 0.0:
                    found.append(f"epsilon {epsilon:g} is 0 in float16, in which weights and state are")
    return list(dict.fromkeys(found))


def _scaler(subject: Subject, trained: dict[str, Tensor]) -> list[str]:
    half = sum(p.dtype is torch.float16 for p in trained.values())
    if subject.scaler is None or not half:
        return []
    return [f"a gradient scaler is in use, and {half} trained tensors are in float16: it refuses to unscale them"]


def _tables(model: nn.Module) -> list[str]:
    """Position tables in half precision whose neighbouring values have become equal."""
    found = []
    for name, buffer in model.named_buffers():
        if buffer.dtype not in LOW or not any(word in name.lower() for word in _TABLES):
            continue
        flat = buffer.detach().flatten().double()
        whole = len(flat) > 1 and bool((flat == flat.round()).all()) and float(flat.abs().max()) > 1
        if whole and len(torch.unique(flat)) < len(flat):
            found.append(f"positions in {name} are no longer all different in {_short(buffer.dtype)}")
        elif not whole:
            found.append(f"the table of positions {name} is in {_short(buffer.dtype)}")
    return found[:3]


def _made_in_other(subject: Subject, autocast: set[torch.dtype]) -> list[str]:
    """Float16 used for a model whose weights come from bfloat16."""
    config = getattr(subject.model, "config", None)
    told = getattr(config, "dtype", None) or vars(config).get("torch_dtype") if config is not None else None
    came = str(told).removeprefix("torch.") == "bfloat16"
    weights = any(p.dtype is torch.bfloat16 for p in subject.model.parameters())
    if (came or weights) and (torch.float16 in autocast or subject.scaler is not None):
        return ["the weights come from bfloat16, and float16 cannot hold all values that such a model has"]
    return []


def _state_dtypes(optimizer: torch.optim.Optimizer) -> list[str]:
    tensors = [v for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor) and v.dim()]
    return sorted({_short(tensor.dtype) for tensor in tensors})


def _has_master_copy(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer keeps a float32 copy of half-precision weights."""
    return any(
        "master" in str(name).lower() or "fp32" in str(name).lower()
        for state in optimizer.state.values()
        for name in state
    )


@contextlib.contextmanager
def _autocast_seen(model: nn.Module, found: set[torch.dtype]) -> Iterator[None]:
    """Record the autocast dtypes under which the model is called."""

    def begins(module: nn.Module, args: Any, kwargs: Any) -> None:
        for device in ("cuda", "cpu"):
            if torch.is_autocast_enabled(device):
                found.add(torch.get_autocast_dtype(device))

    leaves = [module for module in model.modules() if not list(module.children())]
    handles = [module.register_forward_pre_hook(begins, with_kwargs=True) for module in leaves[:64]]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Softmax(TorchFunctionMode):
    """Counts softmaxes with a float16 result."""

    def __init__(self) -> None:
        super().__init__()
        self.low = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") == "softmax" and isinstance(result, Tensor) and result.dtype is torch.float16:
            self.low += 1
        return result


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
