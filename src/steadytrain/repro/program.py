"""A runnable program: a few torch operations over named tensors, with the tensor that shows the fault.

In a *forward* program a result shows the fault. In a *backward* program the gradient of an input does: autograd runs
from the last operation's results with the recorded gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steadytrain.core.torch_private import OPERATOR
from steadytrain.repro.arguments import CannotWriteError, Device, Ref, from_json, map_leaves, refs_in, to_json
from steadytrain.repro.trail import tensors_of
from steadytrain.tracing.tensor_summary import Kinds, kinds_of

SEED = 0


@dataclass(frozen=True)
class Step:
    """One operation such as ``aten.log.default``. ``results`` and ``written`` are as in :class:`trail.Entry`."""

    operation: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[str | None, ...]
    written: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Program:
    """``inputs`` are in the order of the script. ``outputs`` and ``gradients`` match by position (backward programs).

    ``subject`` is the operation that broke, or, in backward, the one whose derivative did. ``target`` names the result,
    or
    the input whose gradient, holds ``kind``. ``meant`` are values that may be non-finite, such as a mask of -Inf that
    the
    recorded run had too.
    """

    subject: str
    steps: tuple[Step, ...]
    inputs: Mapping[str, Tensor]
    outputs: tuple[str, ...]
    gradients: tuple[str | None, ...]
    target: str
    kind: Kinds
    meant: frozenset[str]
    device: str

    @property
    def backward(self) -> bool:
        return bool(self.gradients)

    @property
    def seeded(self) -> bool:
        """Whether a seed is set before the run, because an operation may draw random numbers."""
        return any(draws_random_numbers(step.operation) for step in self.steps)

    def given(self, inputs: Mapping[str, Tensor]) -> Program:
        return replace(self, inputs=inputs)


@dataclass(frozen=True)
class Ran:
    """The result of a run: every value by name, and the target or its gradient."""

    values: Mapping[str, Tensor]
    target: Tensor | None


def run(program: Program) -> Ran:
    """Runs ``program`` on copies of its inputs. Errors of torch propagate."""
    if program.seeded:
        torch.manual_seed(SEED)
    # "copy" protects the program's tensors: operations may write where their schema does not say so.
    values = {name: tensor.to(program.device, copy=True) for name, tensor in program.inputs.items()}
    leaf = values[program.target].requires_grad_() if program.backward else None
    with torch.enable_grad() if program.backward else torch.no_grad():
        for step in program.steps:
            run_step(step, values, program.device)
    if not program.backward:
        return Ran(values, values.get(program.target))
    pairs = [
        (values[output], None if gradient is None else values[gradient])
        for output, gradient in zip(program.outputs, program.gradients, strict=True)
        if gradient is not None and values[output].requires_grad
    ]
    torch.autograd.backward([output for output, _ in pairs], [gradient for _, gradient in pairs])
    assert leaf is not None
    return Ran(values, leaf.grad)


def run_step(step: Step, values: dict[str, Tensor], device: str) -> None:
    """Runs one operation and adds its results to ``values``."""
    here = {old: values[old].clone() for old, _ in step.written}

    def resolve(leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            return here.get(leaf.name, values[leaf.name])
        return torch.device(device) if isinstance(leaf, Device) else leaf

    result = function_of(step.operation)(
        *map_leaves(list(step.args), resolve), **map_leaves(dict(step.kwargs), resolve)
    )
    for name, tensor in zip(step.results, tensors_of(result), strict=False):
        if name is not None:
            values[name] = tensor
    values.update({new: here[old] for old, new in step.written})


def function_of(operation: str) -> Any:
    """The operator with this name, such as ``aten.log.default``."""
    found: Any = torch.ops
    for part in operation.split("."):
        found = getattr(found, part)
    return found


def shows_fault(program: Program) -> bool:
    """Whether ``program`` makes the fault from finite inputs, with no unintended non-finite value before it.

    A program that raises does not show the fault.
    """
    if any(kinds_of(tensor) for tensor in program.inputs.values()):
        return False
    try:
        ran = run(program)
    except Exception:  # for example, shapes that do not fit
        return False
    if ran.target is None or program.kind not in kinds_of(ran.target):
        return False
    last = program.steps[-1]
    at_the_end = set() if program.backward else {*last.results, *(new for _, new in last.written)}
    return not any(kinds_of(tensor) for name, tensor in ran.values.items() if name not in program.meant | at_the_end)


def short_names(program: Program) -> dict[str, str]:
    """New names in order of use: x0, x1 for inputs, y0, y1 for results, g0 for gradients."""
    order: dict[str, str] = {}
    counts = {"x": 0, "y": 0, "g": 0}
    made = {name for step in program.steps for name in _made(step)}
    read = [name for step in program.steps for name in refs_in([list(step.args), dict(step.kwargs)])]

    def give(name: str, lead: str) -> None:
        if name not in order:
            order[name] = f"{lead}{counts[lead]}"
            counts[lead] += 1

    for gradient in program.gradients:
        if gradient is not None and gradient not in made and gradient not in read:
            give(gradient, "g")
    for step in program.steps:
        for name in refs_in([list(step.args), dict(step.kwargs)]):
            give(name, "y" if name in made else "x")
        for name in _made(step):
            give(name, "y")
    return order


def renamed_steps(steps: Sequence[Step], names: Mapping[str, str]) -> tuple[Step, ...]:
    """The steps with renamed tensors. ``names`` must contain all."""

    def rename(leaf: Any) -> Any:
        return Ref(names[leaf.name]) if isinstance(leaf, Ref) else leaf

    return tuple(
        Step(
            step.operation,
            tuple(map_leaves(list(step.args), rename)),
            map_leaves(dict(step.kwargs), rename),
            tuple(names[name] if name else None for name in step.results),
            tuple((names[old], names[new]) for old, new in step.written),
        )
        for step in steps
    )


def renamed(program: Program, order: Mapping[str, str]) -> Program:
    """``program`` under new names. Inputs follow the order of their names, gradients last; unnamed ones are dropped."""
    inputs = {order[name]: tensor for name, tensor in program.inputs.items() if name in order}
    return replace(
        program,
        steps=renamed_steps(program.steps, order),
        inputs=dict(sorted(inputs.items(), key=lambda item: (item[0].startswith("g"), int(item[0][1:])))),
        outputs=tuple(order[name] for name in program.outputs),
        gradients=tuple(order[name] if name else None for name in program.gradients),
        target=order.get(program.target, ""),
        meant=frozenset(order[name] for name in program.meant if name in order),
    )


def _made(step: Step) -> list[str]:
    return [name for name in [*step.results, *(new for _, new in step.written)] if name]


def used_names(program: Program) -> set[str]:
    """The names that the steps or the gradients use."""
    used = {name for step in program.steps for name in refs_in([list(step.args), dict(step.kwargs)])}
    return used | {name for name in program.gradients if name is not None}


def program_to_json(program: Program) -> dict[str, Any]:
    """Everything but the tensors.

    Raises:
        CannotWriteError: a script cannot contain an argument.
    """
    return {
        "subject": program.subject,
        "steps": [_step_to_json(step) for step in program.steps],
        "inputs": list(program.inputs),
        "outputs": list(program.outputs),
        "gradients": list(program.gradients),
        "target": program.target,
        "kind": int(program.kind),
        "meant": sorted(program.meant),
        "device": program.device,
    }


def _step_to_json(step: Step) -> dict[str, Any]:
    try:
        args, kwargs = to_json(list(step.args)), to_json(dict(step.kwargs))
    except CannotWriteError as refusal:
        raise CannotWriteError(f"{step.operation}: {refusal}") from None
    written = [list(pair) for pair in step.written]
    return {
        "operation": step.operation,
        "args": args,
        "kwargs": kwargs,
        "results": list(step.results),
        "written": written,
    }


def program_from_json(data: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Program:
    """Inverts :func:`program_to_json`, given the tensors."""
    steps = tuple(
        Step(
            step["operation"],
            tuple(from_json(step["args"])),
            from_json(step["kwargs"]),
            tuple(step["results"]),
            tuple((old, new) for old, new in step["written"]),
        )
        for step in data["steps"]
    )
    return Program(
        data["subject"],
        steps,
        {name: tensors[name] for name in data["inputs"]},
        tuple(data["outputs"]),
        tuple(data["gradients"]),
        data["target"],
        Kinds(data["kind"]),
        frozenset(data["meant"]),
        data["device"],
    )


def check_operation(function: Any) -> str:
    """The name of a torch operator, such as ``aten.log.default``.

    Raises:
        CannotWriteError: the operator is of another library, or not callable through ``torch.ops``.
    """
    name = str(function)
    if not isinstance(function, OPERATOR.get()):
        raise CannotWriteError(f"{name} is a higher-order operator, which a script cannot call by itself")
    if function.namespace not in ("aten", "prims", "quantized", "torch"):
        raise CannotWriteError(f"{name} is not an operation of torch but of {function.namespace}, which a script needs")
    return name


def draws_random_numbers(operation: str) -> bool:
    """Whether the operation may draw random numbers (attention does, for its dropout)."""
    return torch.Tag.nondeterministic_seeded in function_of(operation).tags
