"""Recomputes the script's own loss on a batch of the same form.

| way | when |
|---|---|
| the model | it returns the loss itself (a Hugging Face model that gets labels) |
| ``training_step`` | a LightningModule is being trained |
| the script's lines | from the model call to backward, as ``tracing/line_rerun`` extracts them: loops, trainers |
| a function | ``loss_fn`` of code that passes its model |
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.step.input_recorder import AutocastState
from steadytrain.checks.subject.model_check import Batch, CannotError, Look
from steadytrain.core.torch_private import compiler_is_loaded
from steadytrain.preflight_runs.forward_calls import LossWatch, calls_of
from steadytrain.tracing.investigator import autocast_as, plain_module
from steadytrain.tracing.line_rerun import CannotRunAgainError, Lines, run_with

ARGUMENT = "args[{}]"


@dataclass(frozen=True, eq=False)
class Way(ABC):
    """Computes the loss of a batch. ``modules`` are the roots that the script calls."""

    modules: Sequence[nn.Module]

    @abstractmethod
    def compute(self, batch: Batch) -> Tensor:
        """The loss with its graph, without factors of accumulation and loss scaling."""

    @property
    @abstractmethod
    def words(self) -> str:
        """A description of the code."""

    def objects(self) -> list[Any]:
        """Objects besides the modules that the code may modify."""
        return []

    def look(self, batch: Batch) -> Look:
        """Computes the loss and records the calls.

        Raises:
            CannotError: the script's code does not accept this batch, or returns no loss.
        """
        with torch.enable_grad(), eager(), calls_of(self.modules) as calls, LossWatch() as watch:
            try:
                loss = self.compute(batch)
            except CannotError:
                raise
            except CannotRunAgainError as refusal:
                raise CannotError(f"the script's lines cannot be run again: {refusal}") from None
            except Exception as error:  # any error of the script's code on a batch that it did not make
                said = " ".join(str(error).split())[:200]
                raise CannotError(f"{self.words} ended with {type(error).__name__}: {said}") from error
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise CannotError(f"{self.words} returned no scalar loss")
        return Look(loss.reshape(()), calls, watch.calls)


@dataclass(frozen=True, eq=False)
class ModelWay(Way):
    """The model returns its loss at ``place`` of its output."""

    module: nn.Module
    autocast: AutocastState
    place: tuple[Any, ...]

    @property
    def words(self) -> str:
        return f"the model, {type(plain_module(self.module)).__name__}, which returns its loss,"

    def compute(self, batch: Batch) -> Tensor:
        args, kwargs = arguments_of(batch.values)
        with autocast_as(self.autocast):
            output = plain_module(self.module)(*args, **kwargs)
        for key in self.place:
            output = output[key]
        assert isinstance(output, Tensor)
        return output


@dataclass(frozen=True, eq=False)
class StepWay(Way):
    """Calls Lightning's ``training_step`` with its loggers silenced."""

    owner: Any
    names: tuple[str, ...]
    autocast: AutocastState

    @property
    def words(self) -> str:
        return f"{type(self.owner).__name__}.training_step"

    def objects(self) -> list[Any]:
        return [self.owner]

    def compute(self, batch: Batch) -> Tensor:
        silent = dict.fromkeys(("log", "log_dict", "print"), _says_nothing)
        vars(self.owner).update(silent)
        try:
            with autocast_as(self.autocast):
                given = self.owner.training_step(*(batch.values[name] for name in self.names))
        finally:
            for name in silent:
                vars(self.owner).pop(name, None)
        loss = given.get("loss") if isinstance(given, Mapping) else given
        if not isinstance(loss, Tensor):
            raise CannotError(f"{self.words} returned no loss")
        return loss


@dataclass(frozen=True, eq=False)
class LinesWay(Way):
    """Runs the script's own lines with the variables of their function.

    ``fixed`` are the variables without data of the batch. ``fed``: the batch replaces the arguments of the model call,
    because the lines make their inputs from variables without tensors.
    """

    lines: Lines
    fixed: Mapping[str, Any]
    autocast: AutocastState
    factor: float
    place: str
    fed: bool = False

    @property
    def words(self) -> str:
        return f"the script's own lines ({self.place})"

    def objects(self) -> list[Any]:
        return list(self.fixed.values())

    def compute(self, batch: Batch) -> Tensor:
        variables = {**self.fixed, **({} if self.fed else _own_containers(batch.values))}
        context = contextlib.nullcontext() if self.lines.own_context else autocast_as(self.autocast)
        with context, self._feeding(batch):
            return run_with(variables, self.lines) * self.factor

    @contextlib.contextmanager
    def _feeding(self, batch: Batch) -> Iterator[None]:
        if not self.fed:
            yield
            return
        args, kwargs = arguments_of(batch.values)
        hook = self.modules[0].register_forward_pre_hook(lambda module, a, k: (tuple(args), kwargs), with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()


@dataclass(frozen=True, eq=False)
class FunctionWay(Way):
    """Calls ``loss_fn(model, batch)``. With None the model itself returns the loss."""

    model: nn.Module
    function: Callable[..., Any] | None = field(default=None)

    @property
    def words(self) -> str:
        return "loss_fn" if self.function is not None else "the model"

    def compute(self, batch: Batch) -> Tensor:
        if self.function is not None:
            given = self.function(self.model, batch.values["batch"])
        else:
            args, kwargs = called_with(batch.values["batch"])
            given = self.model(*args, **kwargs)
        loss = given.get("loss") if isinstance(given, Mapping) else given
        loss = getattr(given, "loss", None) if not isinstance(loss, Tensor) else loss
        if not isinstance(loss, Tensor):
            raise CannotError(f"{self.words} returned {type(given).__name__} instead of a loss")
        return loss


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Runs compiled code uncompiled, because other shapes would recompile."""
    if not compiler_is_loaded():
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def values_of_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name; positional ones as ``args[0]``."""
    return {**{ARGUMENT.format(at): value for at, value in enumerate(args)}, **kwargs}


def arguments_of(values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Inverts :func:`values_of_call`."""
    args: list[Any] = []
    while ARGUMENT.format(len(args)) in values:
        args.append(values[ARGUMENT.format(len(args))])
    taken = {ARGUMENT.format(at) for at in range(len(args))}
    return args, {name: value for name, value in values.items() if name not in taken}


def called_with(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """How a model gets a batch: a mapping by name, a tuple in order, anything else as the only argument."""
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (tuple(batch), {}) if isinstance(batch, (tuple, list)) else ((batch,), {})


def names_in(code: CodeType) -> set[str]:
    """Every name that ``code`` and its inner functions may look up."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= names_in(constant)
    return names


def _own_containers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copies dicts and lists, so that ``inputs.pop("labels")`` does not change the batch."""

    def copied(value: Any) -> Any:
        if type(value) is dict:
            return {key: copied(entry) for key, entry in value.items()}
        if type(value) is list:
            return [copied(entry) for entry in value]
        return value.copy() if isinstance(value, Mapping) and hasattr(value, "copy") else value

    return {name: copied(value) for name, value in values.items()}


def _says_nothing(*args: Any, **kwargs: Any) -> None:
    """Replaces Lightning's loggers, which work only inside its own loop."""
