"""Chooses the steps to reproduce: where the loss rises in the captured steps, and whether a batch or an update causes
it.

Three shapes, the most specific first, at the earliest step:

- ``batch``: with the weights from before the rise, this batch has a high loss and the one before has not.
- ``update``: one update raises the loss of its own batch.
- ``updates``: several updates together raise the loss of their first batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from steadytrain.repro.program import Program, program_from_json, renamed_steps
from steadytrain.repro.training_program import Group, Moment, Rule, Training, gradients_of, loss_number, moments, probe

Shape = Literal["batch", "update", "updates"]

SHARE_MIN = 0.5
"""Minimum share of the run's rise that the script must show."""

SPREADS_MIN = 6.0
"""A batch is unusual if its loss exceeds this many spreads (four standard deviations of Gaussian noise)."""

LOSS_TOLERANCE = 1e-2
"""Maximum relative difference between a recorded loss and the program's. A larger one means different computations."""

GRADIENT_TOLERANCE = 1e-2


class CannotShowError(Exception):
    """No such script can be made; the text says why."""


@dataclass(frozen=True)
class RunLosses:
    """Losses of the run: the median before the onset, its spread (median absolute deviation), and the highest
    afterwards.

    ``peak`` is that of the captured steps.
    """

    usual: float
    spread: float
    peak: float

    @property
    def rise_min(self) -> float:
        """The rise to show: half of the run's, and more than the usual fluctuation."""
        return max((self.peak - self.usual) * SHARE_MIN, self.spread * SPREADS_MIN)


@dataclass(frozen=True)
class Rise:
    """A training that shows the rise: ``low`` before, ``high`` after, ``limit`` in between.

    With shape ``batch`` the training has two batches, the one before and the unusual one, and no update. ``step`` is
    that of
    the batch, or of the first update. ``run`` has losses of the run. ``ordinary_high`` is the largest loss of any
    equally
    large piece of the batch before, if rows were cut away.
    """

    shape: Shape
    step: int
    training: Training
    low: float
    high: float
    run: RunLosses
    ordinary_high: float | None = None

    @property
    def limit(self) -> float:
        low = self.low if self.ordinary_high is None else max(self.low, self.ordinary_high)
        return low + (self.high - low) * SHARE_MIN

    def measured(self, training: Training) -> tuple[float, float]:
        """``low`` and ``high`` of another training of the same shape; NaN if it fails."""
        if self.shape != "batch":
            return probe(training)
        before, after = training.batches
        weights = training.weights
        return loss_number(training.program, weights, before), loss_number(training.program, weights, after)


@dataclass(frozen=True)
class Captured:
    """The captured steps: their programs, losses and inputs besides the weights, up to the first that failed."""

    steps: tuple[int, ...]
    programs: tuple[Program, ...]
    losses: tuple[float, ...]
    training: Training
    notes: tuple[str, ...]


def read_captured(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Captured:
    """The output of ``step_capture`` as a training that starts at its first step.

    Raises:
        CannotShowError: the first step, or its optimizer, cannot go into a script.
    """
    if document["why"] is not None:
        raise CannotShowError(str(document["why"]))
    steps = list(document["steps"])
    if not steps:
        raise CannotShowError("the replay reached none of the steps to capture")
    if steps[0]["why"] is not None:
        raise CannotShowError(str(steps[0]["why"]))
    notes = [f"step {step['step']}: {step['why']}" for step in steps if step["why"] is not None]
    steps = steps[: next((at for at, step in enumerate(steps) if step["why"] is not None), len(steps))]
    programs, batches = [], []
    weights = _weights(steps[0], tensors)
    for step in steps:
        own = {name: f"w{at}" for name, at in step["weights"].items()}
        program = _program(step, own, weights, tensors)
        programs.append(program)
        batches.append({name: tensor for name, tensor in program.inputs.items() if name not in weights})
    rule = _rule(document, steps[0], weights, tensors)
    rates = tuple(
        tuple(float(group["lr"]) for group in _groups_with(step["groups"][0], weights))
        for step in steps
        if "groups" in step
    )
    losses = tuple(sum(step["losses"]) if step["losses"] else math.nan for step in steps)
    training = Training(programs[0], rule, tuple(batches), rates)
    training = replace(training, rule=replace(rule, clip=_clip(training, steps[0], tensors)))
    return Captured(tuple(step["step"] for step in steps), tuple(programs), losses, training, tuple(notes))


def find_rise(captured: Captured, run: RunLosses) -> Rise:
    """The first step that shows at least half of the run's rise.

    Raises:
        CannotShowError: no step does.
    """
    needed = run.rise_min
    training, programs = captured.training, captured.programs
    before = list(moments(replace(training, batches=training.batches[: len(training.rates)]), programs))
    _check_losses(captured, before)
    first = before[0]
    if first.loss > run.usual + needed:
        raise CannotShowError(
            f"the loss is already {first.loss:.4g} at step {captured.steps[0]}, the first that can be replayed"
        )
    for at, step in enumerate(captured.steps):
        one = replace(training, program=_with_inputs(programs[at], first.weights), batches=(training.batches[at],))
        if at and _alike(programs[0], programs[at]):
            pair = replace(training, batches=(training.batches[0], training.batches[at]))
            low, high = first.loss, loss_number(training.program, first.weights, training.batches[at])
            if high - max(low, run.usual) >= needed:
                return Rise("batch", step, pair, low, high, run)
        if at < len(training.rates):
            one = replace(one, rates=(training.rates[at],)).starting_with(before[at].weights, before[at].state)
            low, high = probe(one)
            if high - low >= needed:
                return Rise("update", step, one, low, high, run)
    for count in range(2, len(training.rates) + 1):
        if not all(_alike(programs[0], program) for program in programs[:count]):
            break
        several = replace(training, batches=training.batches[:count], rates=training.rates[:count])
        low, high = probe(several)
        if high - low >= needed:
            return Rise("updates", captured.steps[0], several, low, high, run)
    raise CannotShowError(
        f"within the steps {captured.steps[0]} to {captured.steps[-1]} neither a batch nor the updates show half of "
        f"the rise of the loss from {run.usual:.4g} to {run.peak:.4g}"
    )


def _program(
    step: Mapping[str, Any], own: Mapping[str, str], weights: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> Program:
    """The program of a step, with names that are equal in every step: w for weights, v for the rest, in order."""
    lead = f"{step['step']}."
    kept = {name: weights[own[name]] if name in own else tensors[lead + name] for name in step["program"]["inputs"]}
    program = program_from_json(step["program"], kept)
    order = dict(own)
    for entry in program.steps:
        for name in _names(entry):
            order.setdefault(name, f"v{len(order)}")
    target = order[program.target]
    return replace(
        program,
        steps=renamed_steps(program.steps, order),
        inputs={order[name]: tensor for name, tensor in program.inputs.items()},
        outputs=(target,),
        target=target,
    )


def _names(step: Any) -> list[str]:
    from steadytrain.repro.arguments import refs_in

    read = list(refs_in([list(step.args), dict(step.kwargs)]))
    return [*read, *(name for name in step.results if name), *(name for pair in step.written for name in pair)]


def _weights(step: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"w{at}": tensors[f"{step['step']}.{name}"] for name, at in step["weights"].items()}


def _groups_with(groups: Sequence[Mapping[str, Any]], weights: Mapping[str, Tensor]) -> list[Mapping[str, Any]]:
    return [group for group in groups if any(f"w{at}" in weights for at in group["parameters"])]


def _rule(
    document: Mapping[str, Any], step: Mapping[str, Any], weights: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> Rule:
    names = document.get("optimizers") or []
    if len(names) != 1:
        raise CannotShowError(f"{len(names)} optimizers step together; a script supports one")
    module, _, name = names[0].rpartition(".")
    if not module.startswith("torch.optim") or not hasattr(torch.optim, name):
        raise CannotShowError(f"the optimizer {names[0]} is not part of torch, and a script needs torch alone")
    groups = tuple(
        Group(
            tuple(f"w{at}" for at in group["parameters"] if f"w{at}" in weights),
            {key: value for key, value in group.items() if key != "parameters"},
        )
        for group in _groups_with(step["groups"][0], weights)
    )
    state: dict[str, dict[str, Any]] = {}
    for at, plain in document["state"].items():
        if f"w{at}" in weights:
            lead = f"state.{at}."
            own = {key.removeprefix(lead): tensor for key, tensor in tensors.items() if key.startswith(lead)}
            state[f"w{at}"] = {**plain, **own}
    return Rule(name, groups, state, None)


def _clip(training: Training, step: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> float | None:
    """The run's gradient clipping limit, after checking that the program's clipped gradients match the run's.

    Raises:
        CannotShowError: they do not match.
    """
    own = gradients_of(training.program, training.weights, training.batches[0])
    recorded = {name: tensors[f"gradient.{name[1:]}"] for name in own if f"gradient.{name[1:]}" in tensors}
    if recorded.keys() != own.keys():
        raise CannotShowError("the gradients of the captured operations differ from those of the run")
    limit: float | None = step["clip"]
    norm = _norm(own)
    factor = min(1.0, limit / (norm + 1e-6)) if limit is not None else 1.0
    apart = _norm({name: one * factor - recorded[name] for name, one in own.items()})
    if not apart <= GRADIENT_TOLERANCE * max(_norm(recorded), 1e-12):
        raise CannotShowError(
            "the gradients of the captured operations differ from those of the run: something changes them "
            "before the update, or the model has a custom backward"
        )
    return limit


def _norm(tensors: Mapping[str, Tensor]) -> float:
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors.values()))


def _check_losses(captured: Captured, before: Sequence[Moment]) -> None:
    """Checks that the program's first loss is the run's. Otherwise it computes something else."""
    recorded, own = captured.losses[0], before[0].loss
    if not captured.training.program.seeded and not abs(own - recorded) <= LOSS_TOLERANCE * max(abs(recorded), 1e-6):
        raise CannotShowError(f"the captured operations give a loss of {own:.6g}, the run had {recorded:.6g}")


def _alike(one: Program, other: Program) -> bool:
    """Whether two programs have the same operations and input shapes."""
    same = one.steps == other.steps and one.inputs.keys() == other.inputs.keys()
    return same and all(tensor.shape == other.inputs[name].shape for name, tensor in one.inputs.items())


def _with_inputs(program: Program, weights: Mapping[str, Tensor]) -> Program:
    return program.given({**program.inputs, **weights})
