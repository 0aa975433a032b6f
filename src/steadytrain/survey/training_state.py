"""Facts about parameters, gradients, updates and optimizer state, from the gate and from after the update."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import find_model, living_optimizers, optimizer_parameters, plain_name
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.tensors.dense import dense_values
from steadytrain.survey.moment_facts import LISTED_MAX, MomentFacts

ELEMENTS_MAX = 1 << 26
"""Updates are measured by weight copies for models up to this many parameters."""

STRANGE_ABOVE = 1e3
SCALE_LOW, SCALE_HIGH = 0.02, 10.0
LOST_TOLD = 0.5

WITH_L2 = (
    *(torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax, torch.optim.RMSprop),
    *(torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.SGD, torch.optim.ASGD),
)
"""Optimizers that add the decay to the gradient, unless a group says that it is decoupled. Others decay the weights."""


class State:
    """Follows one stream from its first surveyed gate to the last."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.names: dict[int, str] = {}
        self._parameters: dict[str, Tensor] = {}
        self._without: set[str] | None = None
        self._zero: set[str] | None = None
        self._unmoved: set[str] | None = None
        self._held_by_none: dict[int, str] = {}
        self._before: dict[str, Tensor] = {}
        self._decays: dict[int, float] = {}
        self._first = True
        self.learning_rates: list[float] = []
        self.roots: list[nn.Module] = []

    @torch.no_grad()
    def gate(self, stream: Stream, step: int) -> None:
        """Measures before the update of ``step``."""
        if self._first:
            self._first = False
            self._begin(stream, from_start=step <= 1)
        group = stream.optimizers[0].param_groups[0]
        self.learning_rates.append(float(group["lr"]))
        trainable = {name: p for name, p in self._parameters.items() if p.requires_grad}
        without = {name for name, p in trainable.items() if p.grad is None}
        zero = {name for name, p in trainable.items() if p.grad is not None and not bool(p.grad.any())}
        self._without = without if self._without is None else self._without & without
        self._zero = zero if self._zero is None else self._zero & zero
        if self.facts.get("parameter_elements", 0) <= ELEMENTS_MAX:
            self._before = {name: p.detach().clone() for name, p in trainable.items() if p.grad is not None}
        self._optimizer(stream, step)
        self._decays = {
            id(p): float(g["lr"]) * float(g.get("weight_decay") or 0.0)
            for optimizer in stream.optimizers
            for g in optimizer.param_groups
            for p in g["params"]
        }
        self._l2_shares(stream)
        self._underflow([p.grad for p in trainable.values() if p.grad is not None and p.dim() > 1])
        self._moments(stream)

    @torch.no_grad()
    def updated(self, stream: Stream) -> None:
        """Measures after the update."""
        ratios: dict[str, float] = {}
        lost: dict[str, float] = {}
        still: set[str] = set()
        shares: list[float] = []
        wanted = changed = 0
        for name, before in self._before.items():
            now = self._parameters[name].detach()
            moved = now != before
            if not bool(moved.any()):
                still.add(name)
            gradient = self._parameters[name].grad
            if gradient is not None:
                asked = gradient != 0
                count, kept = int(asked.sum()), int((asked & moved).sum())
                wanted, changed = wanted + count, changed + kept
                if count and 1 - kept / count > LOST_TOLD:
                    lost[name] = round(1 - kept / count, 4)
            weight = _rms(before)
            if before.dim() > 1 and weight > 0:
                moved_by = _rms(now.double() - before.double())
                ratios[name] = moved_by / weight
                decay = self._decays.get(id(self._parameters[name]), 0.0)
                if moved_by > 0 and decay > 0:
                    shares.append(min(1.0, decay * weight / moved_by))
        if not self._before:
            return
        self._unmoved = still if self._unmoved is None else self._unmoved & still
        if ratios:
            ordered = sorted(ratios.values())
            largest, median = ordered[-1], ordered[len(ordered) // 2]
            self.facts.setdefault("update_ratio_first", largest)
            self.facts.setdefault("update_ratio_first_median", median)
            self.facts["update_ratio"], self.facts["update_ratio_median"] = largest, median
        if shares and "decay_is_l2" not in self.facts:
            self.facts["decay_share_of_update"] = max(shares)
        if wanted:
            self.facts["lost_update_share"] = 1 - changed / wanted
            self.facts["lost_updates"] = dict(sorted(lost.items())[:LISTED_MAX])
        self._before = {}

    def _l2_shares(self, stream: Stream) -> None:
        """How much of the gradient that an optimizer uses is its decay, where it is added to the gradient (L2)."""
        shares = []
        for optimizer in stream.optimizers:
            if type(optimizer) not in WITH_L2:
                continue
            for group in optimizer.param_groups:
                decay = float(group.get("weight_decay") or 0.0)
                if decay > 0 and not group.get("decoupled_weight_decay"):
                    matrices = [p for p in group["params"] if p.grad is not None and p.dim() > 1]
                    shares += [_share(decay * p.detach().double(), dense_values(p.grad)) for p in matrices]
        if shares:
            self.facts["decay_is_l2"] = True
            self.facts["decay_share_of_update"] = max(*shares, self.facts.get("decay_share_of_update", 0.0))

    def of_others(self, stream: Stream) -> None:
        """Registers the parameters of another optimizer as held."""
        for parameter in stream.parameters:
            self._held_by_none.pop(id(parameter), None)

    def without_gradient(self, stream: Stream) -> dict[int, Tensor]:
        """The optimizer's parameters that never had a gradient, by id."""
        lost = self._without or set()
        return {id(p): p for p in stream.parameters if self.names.get(id(p)) in lost}

    def finish(self) -> dict[str, Any]:
        facts = self.facts
        facts["parameters_not_in_optimizer"] = sorted(self._held_by_none.values())[:LISTED_MAX]
        if self._without is not None:
            facts["parameters_without_gradient"] = sorted(self._without)[:LISTED_MAX]
            facts["parameters_zero_gradient"] = sorted(self._zero or ())[:LISTED_MAX]
        if self._unmoved is not None:
            facts["parameters_unmoved"] = sorted(self._unmoved)[:LISTED_MAX]
        facts["learning_rates"] = self.learning_rates
        if self.learning_rates:
            facts["learning_rate"] = self.learning_rates[-1]
        return facts

    # -- at the first gate -----------------------------------------------------------------------------------------

    def _begin(self, stream: Stream, *, from_start: bool) -> None:
        held = {id(p) for optimizer in stream.optimizers for g in optimizer.param_groups for p in g["params"]}
        self.roots = list(stream.roots())
        found = find_model(stream.parameters)
        self.roots = self.roots or list(found.roots)
        for name, parameter in named(self.roots):
            self.names.setdefault(id(parameter), name)
            self._parameters.setdefault(name, parameter)
        for parameter, name in zip(stream.parameters, stream.tensor_names, strict=False):
            if id(parameter) not in self.names:
                self.names[id(parameter)] = name
                self._parameters[name] = parameter
        everything = self._parameters
        facts = self.facts
        total = sum(p.numel() for p in everything.values())
        frozen = {name: p for name, p in everything.items() if not p.requires_grad}
        facts["parameter_elements"] = total
        facts["parameters_frozen"] = sorted(frozen)[:LISTED_MAX]
        facts["frozen_share"] = sum(p.numel() for p in frozen.values()) / max(1, total)
        held |= {id(p) for p in optimizer_parameters(living_optimizers())}
        self._held_by_none = {id(p): name for name, p in everything.items() if p.requires_grad and id(p) not in held}
        facts["parameters_in_two_groups"] = self._twice(stream)
        facts["parameters_zero"] = [n for n, p in everything.items() if p.dim() > 1 and not bool(p.any())]
        facts["parameters_nonfinite"] = [n for n, p in everything.items() if not bool(p.isfinite().all())]
        dtypes = [str(p.dtype).removeprefix("torch.") for p in everything.values() if p.requires_grad]
        facts["parameter_dtypes"] = {name: dtypes.count(name) for name in sorted(set(dtypes))}
        facts["devices"] = sorted({str(p.device) for p in everything.values()})
        facts["optimizers"] = len(stream.optimizers)
        inside = {id(p) for root in self.roots for p in root.parameters()}
        # One with a gradient is used: a bare parameter of the script, such as a learned temperature.
        facts["optimizer_strangers"] = sum(id(p) not in inside and p.grad is None for p in stream.parameters)
        if from_start:
            self._initial(everything)
        facts["tied"], facts["tied_broken"] = self._ties(from_start=from_start)
        facts["positions_low_precision"], facts["positions_equal"] = positions(self.roots)

    def _twice(self, stream: Stream) -> list[str]:
        seen: dict[int, int] = {}
        for optimizer in stream.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    seen[id(parameter)] = seen.get(id(parameter), 0) + 1
        return sorted(self.names.get(key, "?") for key, count in seen.items() if count > 1)

    def _initial(self, everything: Mapping[str, Tensor]) -> None:
        tables = {id(m.weight) for root in self.roots for m in root.modules() if isinstance(m, nn.Embedding)}
        strange, scales, equal = {}, {}, []
        for name, parameter in everything.items():
            if parameter.numel() == 0 or not bool(parameter.isfinite().all()):
                continue
            values = parameter.detach().float()
            largest = float(values.abs().max())
            if largest > STRANGE_ABOVE or 0 < largest < torch.finfo(torch.float32).tiny:
                strange[name] = largest
            if values.dim() < 2 or largest == 0:
                continue
            if values.shape[0] > 1 and bool((values == values[:1]).all()):
                equal.append(name)
            scale = _rms(values) if id(parameter) in tables else _rms(values) * math.sqrt(values[0].numel())
            low = 0.0 if id(parameter) in tables else SCALE_LOW
            if not low <= scale <= SCALE_HIGH:
                scales[name] = scale
        self.facts |= {"parameters_strange": strange, "initial_scale": scales, "equal_rows": equal}

    def _ties(self, *, from_start: bool) -> tuple[list[list[str]], list[list[str]]]:
        places: dict[int, list[str]] = {}
        matrices: list[tuple[str, Tensor]] = []
        for root in self.roots:
            for name, parameter in root.named_parameters(remove_duplicate=False):
                places.setdefault(parameter.data_ptr(), []).append(name)
                if parameter.dim() == 2:
                    matrices.append((name, parameter))
        tied = [names[:2] for names in places.values() if len(names) > 1]
        configured = {id(head): _input_table(root) for root in self.roots for head in _configured_heads(root)}
        tables = {
            f"{name}.weight" if name else "weight"
            for root in self.roots
            for name, module in root.named_modules()
            if isinstance(module, nn.Embedding)
        }
        as_tables = {table.data_ptr() for name, table in matrices if name in tables}
        broken = []
        for name, table in matrices:
            for other, head in matrices:
                if name not in tables or other in tables or head.shape != table.shape:
                    continue
                is_wanted = id(head) in configured and configured[id(head)] in (None, table.data_ptr())
                if head.data_ptr() not in as_tables and (is_wanted or (from_start and torch.equal(head, table))):
                    broken.append([name, other])
        return tied, broken

    # -- at each gate ----------------------------------------------------------------------------------------------

    def _optimizer(self, stream: Stream, step: int) -> None:
        optimizer = stream.optimizers[0]
        group = optimizer.param_groups[0]
        facts = self.facts
        facts["optimizer"] = type(optimizer).__name__
        if step <= 1:
            facts["learning_rate_first"] = float(group["lr"])
        groups = [g for one in stream.optimizers for g in one.param_groups]
        facts["learning_rate_groups"] = [float(g["lr"]) for g in groups]
        if "betas" in group:
            facts["betas"] = [float(value) for value in group["betas"]]
        for name, fact in (("momentum", "momentum"), ("eps", "epsilon")):
            if name in group:
                facts[fact] = float(group[name])
        decays = [float(g.get("weight_decay", 0.0) or 0.0) for g in groups]
        facts["weight_decay"] = max(decays, default=0.0)
        facts["decay_per_step"] = max((float(g["lr"]) * d for g, d in zip(groups, decays, strict=True)), default=0.0)
        decayed = [p for g, d in zip(groups, decays, strict=True) if d for p in g["params"]]
        facts["weight_decay_of_norms"] = sorted(self.names.get(id(p), "?") for p in decayed if p.dim() < 2)[:LISTED_MAX]

    def _underflow(self, gradients: list[Tensor]) -> None:
        total = sum(g.numel() for g in gradients)
        small = sum(int((g.abs() < torch.finfo(g.dtype).tiny).sum()) for g in gradients if g.is_floating_point())
        if total:
            self.facts["gradient_underflow_share"] = small / total

    def _moments(self, stream: Stream) -> None:
        found = MomentFacts()
        for optimizer in stream.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    state, name = optimizer.state.get(parameter), self.names.get(id(parameter), "?")
                    if state:
                        found.add(name, parameter, state, group)
        self.facts.update(found.facts())


def named(roots: list[nn.Module]) -> Iterator[tuple[str, Tensor]]:
    """Parameters by the names in the run's records."""
    lead = len(roots) > 1
    for root in roots:
        for name, parameter in root.named_parameters():
            yield (f"{type(root).__name__}." if lead else "") + plain_name(name), parameter


POSITIONS = re.compile(r"(^|[._])(pos|posit\w*|pe|freqs?|frequenc\w*|rope|rotary|cos|sin)([._\d]|$)")
NO_POSITIONS = re.compile(r"weight|mask|bias|scale")
"""Name patterns of position buffers, and of others with similar names (``pos_weight`` weighs positive samples)."""


def positions(roots: list[nn.Module]) -> tuple[dict[str, str], dict[str, list[int]]]:
    """Position or frequency buffers in 16 bits, and position tables with equal neighbouring rows."""
    low, equal = {}, {}
    for root in roots:
        for name, buffer in root.named_buffers():
            if not POSITIONS.search(name.lower()) or NO_POSITIONS.search(name.lower()):
                continue
            if buffer.dtype in (torch.float16, torch.bfloat16):
                low[name] = str(buffer.dtype).removeprefix("torch.")
            if buffer.is_floating_point() and 1 <= buffer.dim() <= 2 and buffer.shape[0] > 1:
                rows = buffer.reshape(buffer.shape[0], -1)
                same = (rows[1:] == rows[:-1]).all(1).nonzero()
                if 0 < len(same) < len(rows) - 1:  # a table that is filled later has all rows alike
                    equal[name] = [int(same[0]), int(same[0]) + 1]
    return low, equal


def _rms(values: Tensor) -> float:
    return math.sqrt(float(values.double().square().mean())) if values.numel() else 0.0


def _share(decay: Tensor, gradient: Tensor | None) -> float:
    """The norm of the decay over that of the whole gradient, 1 at most."""
    whole = 0.0 if gradient is None else _rms(gradient.double() + decay)
    return min(1.0, _rms(decay) / whole) if whole > 0 else 0.0


def _configured_heads(root: nn.Module) -> list[Tensor]:
    """The weight of the output layer that the configuration of ``root`` ties to the embedding of its tokens."""
    if not getattr(getattr(root, "config", None), "tie_word_embeddings", False):
        return []
    ask = getattr(root, "get_output_embeddings", None)
    if callable(ask):  # transformers: a classifier has none, although its configuration ties by default
        weight = getattr(ask(), "weight", None)
        return [weight] if isinstance(weight, Tensor) else []
    linear = [module.weight for module in root.modules() if isinstance(module, nn.Linear)]
    return linear[-1:]


def _input_table(root: nn.Module) -> int | None:
    """The memory of the table that embeds the tokens of a model of transformers; None if the model does not say it."""
    ask = getattr(root, "get_input_embeddings", None)
    weight = getattr(ask(), "weight", None) if callable(ask) else None
    return weight.data_ptr() if isinstance(weight, Tensor) else None
