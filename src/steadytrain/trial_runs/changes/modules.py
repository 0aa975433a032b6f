"""Modules in another mode, with another normalization, or with other initial weights."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from steadytrain.capture.hooks.model_discovery import living_modules
from steadytrain.capture.looks.shared_copies import Kind, kind_of
from steadytrain.core.torch_private import BATCH_NORMS, PARAMETERS
from steadytrain.trial_runs.changes import LiveChange, at_least, one_of
from steadytrain.trial_runs.launched_script import Launched

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@final
@dataclass
class Mode(LiveChange):
    """The model is in ``mode`` (``train`` or ``eval``) at every step, whatever the script set."""

    mode: str
    nothing = "the model is in that mode in every step"

    def check(self) -> None:
        one_of("mode", self.mode, ("train", "eval"))

    def step_begins(self, process: Launched) -> None:
        wanted = self.mode == "train"
        for root in process.roots:
            if any(module.training != wanted for module in root.modules()):
                root.train(wanted)
                self.touch()


@final
@dataclass
class LayerNorm(LiveChange):
    """Batch normalization becomes normalization of each sample, with the same scale and shift."""

    nothing = "there is no batch normalization"

    def begin(self, process: Launched) -> None:
        for root in process.roots:
            for module in root.modules():
                if isinstance(module, BATCH_NORMS.get()):
                    self._replace(module)
                    self.touch()

    @staticmethod
    def _replace(module: nn.Module) -> None:
        def forward(values: Tensor) -> Tensor:
            weight, bias, eps = module.weight, module.bias, module.eps
            return functional.group_norm(values, 1, weight, bias, eps)  # type: ignore[arg-type]

        module.forward = forward


@final
@dataclass
class Reinitialize(LiveChange):
    """Draws the weights anew once at the start, by each module's ``reset_parameters``. Moments are cleared.

    ``he``: linear layers and convolutions as He et al. (1502.01852), with biases of 0.
    """

    seed: int = 0
    he: bool = False
    nothing = "no module can reinitialize its weights"

    def check(self) -> None:
        at_least("seed", self.seed, 0)

    @torch.no_grad()
    def begin(self, process: Launched) -> None:
        before = torch.get_rng_state()
        torch.manual_seed(self.seed)
        for root in process.roots:
            for module in root.modules():
                reset: Any = getattr(module, "reset_parameters", None)
                if callable(reset):
                    reset()
                    if isinstance(module, nn.Embedding):
                        module.weight.mul_(0.02)  # as in language models; torch draws with a standard deviation of 1
                    if self.he and isinstance(module, (nn.Linear, *CONVOLUTIONS)):
                        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                        if module.bias is not None:
                            module.bias.zero_()
                    self.touch()
        torch.set_rng_state(before)
        for optimizer in process.optimizers:
            for values in optimizer.state.values():
                for value in values.values():
                    if isinstance(value, Tensor):
                        value.zero_()


@final
@dataclass
class Retie(LiveChange):
    """The parameters in each of ``pairs`` (alternating names) share the values of the first one again."""

    pairs: list[str]
    nothing = "these parameters are tied already, or do not exist"

    def check(self) -> None:
        if not self.pairs or len(self.pairs) % 2:
            raise ValueError(f"pairs {self.pairs}: give names in pairs")

    def begin(self, process: Launched) -> None:
        for first, second in zip(self.pairs[::2], self.pairs[1::2], strict=True):
            for root in process.roots:
                places = {
                    f"{path}.{name}" if path else name: (module, name)
                    for path, module in root.named_modules()
                    for name in PARAMETERS.of(module)
                }
                if first in places and second in places:
                    (one, one_name), (other, other_name) = places[first], places[second]
                    if PARAMETERS.of(one)[one_name] is not PARAMETERS.of(other)[other_name]:
                        PARAMETERS.of(other)[other_name] = PARAMETERS.of(one)[one_name]
                        self.touch()


@final
@dataclass
class BatchFirst(LiveChange):
    """Attention layers of torch take [rows, places, features] for what it is, and recurrent layers step along the other
    axis than before."""

    nothing = "no attention layer of torch reads the batch as its second dimension, and there is no recurrent layer"
    _turned: set[int] = field(default_factory=set)

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> None:
        for root in process.roots:
            for module in root.modules():
                attends = isinstance(module, nn.MultiheadAttention) and not module.batch_first
                if attends or (isinstance(module, nn.RNNBase) and id(module) not in self._turned):
                    self._turned.add(id(module))
                    module.batch_first = not bool(module.batch_first)  # type: ignore[assignment]
                    self.touch()


@final
@dataclass
class OwnParameters(LiveChange):
    """A second module of a model's class around the model's own parameters gets copies of them: at its first call
    without gradients after the model was called with them."""

    nothing = "no second module has the parameters of the model"

    def begin(self, process: Launched) -> None:
        alike: dict[Kind, list[nn.Module]] = {}
        for module in living_modules():
            alike.setdefault(kind_of(module), []).append(module)
        for kind in {kind_of(root) for root in process.roots}:
            if kind[1] and len(alike.get(kind, ())) > 1:
                self._watch(alike[kind])

    def _watch(self, modules: list[nn.Module]) -> None:
        trained: set[int] = set()

        def called(module: nn.Module, _: Any) -> None:
            if torch.is_grad_enabled():
                trained.add(id(module))
            elif trained and id(module) not in trained and id(module) in hooks:
                hooks.pop(id(module)).remove()
                module.__dict__.update(copy.deepcopy(module).__dict__)
                self.touch()

        hooks = {id(module): module.register_forward_pre_hook(called) for module in modules}
