"""Facts about module calls: whether, in which mode, with or without gradients, and their outputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from steadytrain.capture.hooks.model_discovery import plain_name
from steadytrain.core.torch_private import DROPOUTS, NORMS, PARAMETERS
from steadytrain.survey.routers import balanced, has_experts

if TYPE_CHECKING:
    from steadytrain.survey.calls import Calls

MODE_MATTERS = (DROPOUTS.get(), NORMS.get())
NORM_OF_ONE = (nn.LayerNorm, nn.GroupNorm)
DEAD_TOLD, SATURATED_TOLD, NEAR_END = 0.5, 0.5, 1e-3
ROUTER_NAMES = ("router", "gate", "gating")
EXPERTS_MAX = 512
DEPTH_RATIO_MIN_LAYERS = 2


class Modules:
    """Global hooks on every module, for the life of the process."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._roots: dict[int, nn.Module] = {}
        self._called: set[int] = set()
        self._detached: dict[int, bool] = {}
        self._without_gradients: set[int] = set()
        self._dead: dict[int, Tensor] = {}
        self._saturated: dict[int, float] = {}
        self._outputs: list[tuple[int, float]] = []
        self._first_outputs: list[tuple[int, float]] = []
        self._router: dict[int, tuple[float, int]] = {}
        self._shifted_bias: set[int] = set()
        self.root_in_eval = False
        """The module that a training step calls is itself in evaluation mode, not only parts of it."""

        self._root_now = False
        self._in_eval_now: set[int] = set()
        """The modes since the last step. What an evaluation after it leaves belongs to no step."""

        self.evaluated_in_training = False
        self.facts: dict[str, Any] = {}
        self.in_eval: set[int] = set()

    def watch(self) -> None:
        """Hooks every module, including those created later."""
        torch_modules.register_module_forward_pre_hook(self._before)
        torch_modules.register_module_forward_hook(self._after, always_call=True)

    def root_called(self, module: nn.Module) -> None:
        """Registers a call of a root module with gradients enabled."""
        self._roots[id(module)] = module
        self._root_now = not module.training

    def step_begins(self) -> None:
        self._calls.in_forward = 0
        self._outputs = []
        self._dead = {}

    def step(self, names: dict[int, str]) -> None:
        self.root_in_eval, self.in_eval = self._root_now, set(self._in_eval_now)
        if not self._first_outputs and self._outputs:
            self._first_outputs = self._outputs

    def first_gradients(self, roots: list[nn.Module]) -> None:
        """Compares gradient sizes by depth at the first gate."""
        ratio = _gradient_ratio(roots)
        if ratio is not None:
            self.facts.setdefault("gradient_ratio", ratio)

    def gradients(self, roots: list[nn.Module]) -> None:
        """Compares gradient sizes by depth at the last gate."""
        ratio = _gradient_ratio(roots)
        if ratio is not None:
            self.facts["gradient_ratio_last"] = ratio
        tables = [m.weight for root in roots for m in root.modules() if isinstance(m, nn.Embedding)]
        total = sum(float(p.grad.double().square().sum()) for r in roots for p in r.parameters() if p.grad is not None)
        inside = sum(float(w.grad.double().square().sum()) for w in tables if w.grad is not None)
        if tables and total > 0:
            self.facts["embedding_gradient_share"] = inside / total

    # -- hooks -----------------------------------------------------------------------------------------------------

    def _before(self, module: nn.Module, args: Any) -> None:
        self._calls.in_forward += 1
        self._calls.made.model_called()

    def _after(self, module: nn.Module, args: Any, output: Any) -> None:
        self._calls.in_forward = max(0, self._calls.in_forward - 1)
        if not self._calls.active:
            return
        try:
            with self._calls.aside():
                self._read(module, output)
        except Exception as error:  # an output of an unusual form is skipped
            note = f"an output of {type(module).__name__} was not read: {type(error).__name__}: {error}"
            if note not in self._calls.seen.notes:
                self._calls.seen.notes.append(note)

    def _read(self, module: nn.Module, output: Any) -> None:
        key, own = id(module), _is_trainable(module)
        if not torch.is_grad_enabled():
            if own and self._calls.in_forward and self._roots:
                self._without_gradients.add(key)
            if isinstance(module, MODE_MATTERS) and module.training and not self._calls.in_forward:
                self.evaluated_in_training = True
            return
        self._called.add(key)
        if isinstance(module, MODE_MATTERS):
            (self._in_eval_now.discard if module.training else self._in_eval_now.add)(key)
        value = next((part for part in _tensors(output) if part.is_floating_point()), None)
        if value is None or value.numel() == 0:
            return
        if own:
            self._detached[key] = self._detached.get(key, True) and not value.requires_grad
        values = value.detach()
        if own and values.dim() > 1:
            self._outputs.append((key, float(values.float().square().mean().sqrt())))
        self._read_kind(key, module, values)

    def _read_kind(self, key: int, module: nn.Module, values: Tensor) -> None:
        """Reads what is specific to the module's class."""
        if isinstance(module, (nn.ReLU, nn.GELU, nn.SiLU, nn.LeakyReLU)) and values.dim() > 1:
            dead = (values == 0).reshape(-1, values.shape[-1]).all(0)
            self._dead[key] = self._dead.get(key, dead) & dead
        if isinstance(module, (nn.Tanh, nn.Sigmoid)):
            low = -1.0 if isinstance(module, nn.Tanh) else 0.0
            near = ((values - low).abs() < NEAR_END) | ((1 - values).abs() < NEAR_END)
            self._saturated[key] = float(near.float().mean())
        if isinstance(module, NORM_OF_ONE) and _normalised_size(module, values) == 1:
            self._shifted_bias.add(key)
        if isinstance(module, nn.Linear) and 1 < module.out_features <= EXPERTS_MAX and values.dim() > 1:
            chosen = values.reshape(-1, values.shape[-1]).argmax(-1)
            share = float(torch.bincount(chosen, minlength=values.shape[-1]).max() / max(1, len(chosen)))
            self._router[key] = (share, int(values.shape[-1]))

    # -- the end ---------------------------------------------------------------------------------------------------

    def finish(self, names: dict[int, str]) -> dict[str, Any]:
        """The facts, with modules by their name in their root."""
        known = {id(module): plain_name(name) for root in self._roots.values() for name, module in root.named_modules()}
        facts = self.facts

        def named(keys: Any) -> list[str]:
            return sorted(known[key] for key in keys if key in known)

        modules = [module for root in self._roots.values() for module in root.modules()]
        trainable = {id(module) for module in modules if _is_trainable(module)}
        facts["modules_not_called"] = named(trainable - self._called - self._without_gradients)
        facts["modules_output_detached"] = named(key for key, gone in self._detached.items() if gone)
        facts["no_grad_calls"] = named(self._without_gradients)
        facts["modules_in_eval"] = named(self.in_eval)
        facts["evaluated_in_train_mode"] = self.evaluated_in_training
        facts["norm_over_batch"] = named(self._shifted_bias)
        dead = {key: float(mask.float().mean()) for key, mask in self._dead.items()}
        facts["dead_units"] = {known[key]: share for key, share in dead.items() if share > DEAD_TOLD and key in known}
        facts["saturated_units"] = {
            known[key]: share for key, share in self._saturated.items() if share > SATURATED_TOLD and key in known
        }
        norms = [module for module in modules if isinstance(module, NORMS.get())]
        facts["batch_norm_modules"] = named(id(module) for module in norms)
        variances = [m.running_var for m in norms if isinstance(m.running_var, Tensor)]
        if variances:
            lowest, highest = min(v.min() for v in variances), max(v.max() for v in variances)
            facts["batch_norm_variance"] = [float(lowest), float(highest)]
        if len(self._first_outputs) >= DEPTH_RATIO_MIN_LAYERS and self._first_outputs[0][1] > 0:
            facts["activation_ratio"] = self._first_outputs[-1][1] / self._first_outputs[0][1]
        facts.update(self._routers(known))
        return facts

    def _routers(self, known: dict[int, str]) -> dict[str, Any]:
        """For modules named like routers, with experts beside them: the largest share of one expert, the number of
        experts, and whether a loss balances."""
        named = [
            key for key in self._router if any(part in known.get(key, "").lower().split(".") for part in ROUTER_NAMES)
        ]
        near = {
            id(router) for router, holder in _with_holders(self._roots.values(), named) if has_experts(router, holder)
        }
        routers = {key: self._router[key] for key in named if key in near}
        if not routers:
            return {}
        return {
            "router_share": {known[key]: share for key, (share, _) in routers.items()},
            "router_experts": {known[key]: experts for key, (_, experts) in routers.items()},
            "router_balanced": balanced(self._calls.loss_node, _with_parents(self._roots.values(), routers)),
        }


def _is_trainable(module: nn.Module) -> bool:
    """Whether ``module`` itself, not only a child, has a trainable parameter."""
    return any(p.requires_grad for p in PARAMETERS.of(module).values() if p is not None)


def _gradient_ratio(roots: list[nn.Module]) -> float | None:
    """The gradient RMS of the first matrix over that of the last; None with fewer than two nonzero ones.

    Zero gradients are left out: a zero-initialised matrix passes no gradient back in the first step.
    """
    sizes = [
        math.sqrt(float(p.grad.double().square().mean()))
        for root in roots
        for p in root.parameters()
        if p.grad is not None and p.dim() > 1
    ]
    found = [size for size in sizes if size > 0]
    return found[0] / found[-1] if len(found) >= DEPTH_RATIO_MIN_LAYERS else None


def _with_holders(roots: Iterable[nn.Module], wanted: Collection[int]) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Yields modules with these ids, each with its parent and with the parent of that: a router may be a module."""
    for root in roots:
        for holder in root.modules():
            below = [child for parent in (holder, *holder.children()) for child in parent.children()]
            yield from ((child, holder) for child in below if id(child) in wanted)


def _with_parents(roots: Iterable[nn.Module], wanted: Collection[int]) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Yields modules with these ids, each with its parent."""
    for root in roots:
        for parent in root.modules():
            yield from ((child, parent) for child in parent.children() if id(child) in wanted)


def _normalised_size(module: nn.Module, values: Tensor) -> int:
    if isinstance(module, nn.LayerNorm):
        return math.prod(module.normalized_shape)
    assert isinstance(module, nn.GroupNorm)
    return values[0].numel() // module.num_groups if values.dim() > 1 else 0


def _tensors(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, (list, tuple)):
        return [part for value in output for part in _tensors(value)]
    if isinstance(output, dict):
        return [part for value in output.values() for part in _tensors(value)]
    return []
