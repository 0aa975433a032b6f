"""Writes a training that shows a rising loss as a script that needs torch alone and fails while the rise exists."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from steadytrain.repro.arguments import Ref, map_leaves, refs_in, source
from steadytrain.repro.program import SEED, Program, Step, renamed_steps
from steadytrain.repro.program_script import LINE_CHARACTERS_MAX, TENSORS, statements
from steadytrain.repro.rise_search import Rise, Shape
from steadytrain.repro.training_program import Rule

FAULTS: Mapping[Shape, str] = {
    "batch": "the loss of this batch stands out",
    "update": "the update raises the loss of its own batch",
    "updates": "the updates raise the loss of their first batch",
}
"""Part of the assertion message, which separates the fault from other failures."""

VIEWS: Mapping[str, str] = {
    "aten.t.default": "t",
    "aten.transpose.int": "transpose",
    "aten.view.default": "view",
    "aten._unsafe_view.default": "reshape",
    "aten.expand.default": "expand",
    "aten.unsqueeze.default": "unsqueeze",
    "aten.permute.default": "permute",
    "aten.select.int": "select",
}
"""Operations that are written as methods where they are used, if they are used once."""

DIGITS = 6


@dataclass(frozen=True)
class TrainingScript:
    """The text, and the content of its file."""

    text: str
    kept: Mapping[str, Any]


def write_training_script(rise: Rise, *, exact: bool) -> TrainingScript:
    """``rise`` as a script. With ``exact`` it calls operations by their overload, otherwise by their public name."""
    order = names_in_script(rise, exact=exact)
    program = rise.training.program
    program = replace(
        program,
        steps=renamed_steps(program.steps, order),
        inputs={order[name]: tensor for name, tensor in program.inputs.items()},
        target=order[program.target],
    )
    weights = rise.training.rule.weights
    rule = [order[name] for name in weights]
    back = {order[name]: name for name in rise.training.program.inputs}
    given = sorted((name for name in program.inputs if name not in rule), key=lambda name: int(name[1:]))
    updates = rise.shape != "batch"
    states = [rise.training.rule.state.get(name, {}) for name in weights]
    batches = [[batch[back[name]].clone() for name in given] for batch in rise.training.batches]
    kept: dict[str, Any] = {
        "weights": [rise.training.program.inputs[name].clone() for name in weights],
        **({"state": states} if updates and any(states) else {}),
        **({"batch": batches[0]} if len(batches) == 1 else {"batches": batches}),
    }
    body = program if exact else _views_behind(program)
    used = {name for step in body.steps for name in refs_in([list(step.args), dict(step.kwargs)])} | {program.target}
    first, *rest = textwrap.wrap(f"{training_title(rise)}. {_needs()}", LINE_CHARACTERS_MAX)
    lines = [
        f'"""{first}',
        *rest,
        "Fails with an AssertionError while that is so.",
        '"""',
        "from pathlib import Path",
        "",
        "import torch",
        "",
        f'kept = torch.load(Path(__file__).with_name("{TENSORS}"), weights_only=True)',
        'weights = [weight.requires_grad_() for weight in kept["weights"]]',
        "",
        "",
        f"def loss_of({', '.join(given)}):",
        *([f"    torch.manual_seed({SEED})"] if program.seeded else []),
        *(f"    {line}" for line in _wrapped(f"{', '.join(rule)}{',' if len(rule) == 1 else ''} = weights")),
        *(f"    {line}" for step in body.steps for line in statements(step, used, exact=exact)),
        f"    return {program.target}",
        "",
        "",
        'if __name__ == "__main__":',
        *(f"    {line}" for line in _ending(rise, states=updates and any(states))),
    ]
    return TrainingScript("\n".join(lines) + "\n", kept)


def training_title(rise: Rise) -> str:
    """What the script shows, in one line."""
    low, high = f"{rise.low:.4g}", f"{rise.high:.4g}"
    if rise.shape == "batch":
        return f"With the same weights the loss is {low} on one batch and {high} on the next"
    name, count = rise.training.rule.optimizer, len(rise.training.batches)
    if rise.shape == "update":
        return f"An update of {name} raises the loss of its own batch from {low} to {high}"
    return f"{count} updates of {name} raise the loss of their first batch from {low} to {high}"


def optimizer_call(rule: Rule, rates: Sequence[float]) -> str:
    """The optimizer with all non-default arguments. ``rates`` are the learning rates of its groups."""
    kind = getattr(torch.optim, rule.optimizer)
    defaults = {name: one.default for name, one in inspect.signature(kind).parameters.items()}

    def given(settings: Mapping[str, Any]) -> dict[str, Any]:
        known = {name: tuple(one) if isinstance(one, list) else one for name, one in settings.items()}
        return {n: one for n, one in known.items() if n == "lr" or (n in defaults and one != defaults[n])}

    groups = [given({**group.settings, "lr": rate}) for group, rate in zip(rule.groups, rates, strict=True)]
    if len(groups) == 1:
        return f"torch.optim.{rule.optimizer}({', '.join(['weights', *_arguments(groups[0])])})"
    parts, start = [], 0
    for group, settings in zip(rule.groups, groups, strict=True):
        end = start + len(group.weights)
        more = "".join(f', "{name}": {one!r}' for name, one in settings.items())
        parts.append(f'{{"params": weights[{start}:{end}]{more}}}')
        start = end
    return f"torch.optim.{rule.optimizer}([{', '.join(parts)}])"


def _arguments(settings: Mapping[str, Any]) -> list[str]:
    return [f"{name}={one!r}" for name, one in settings.items()]


def _ending(rise: Rise, *, states: bool) -> Iterator[str]:
    training, rule = rise.training, rise.training.rule
    limit = f"{rise.limit:.{DIGITS}g}"
    if rise.shape == "batch":
        yield 'before, after = (float(loss_of(*batch).detach()) for batch in kept["batches"])'
        yield 'print("torch", torch.__version__, "loss of one batch", before, "of the next", after)'
        yield f'assert after < {limit}, "{FAULTS[rise.shape]}"'
        return
    yield from _wrapped(f"optimizer = {optimizer_call(rule, training.rates[0])}")
    if states:
        yield 'for weight, state in zip(weights, kept["state"]):'
        yield "    optimizer.state[weight] = state"
    first = 'kept["batch"]' if len(training.batches) == 1 else 'kept["batches"][0]'
    clip = [] if rule.clip is None else [f"torch.nn.utils.clip_grad_norm_(weights, {rule.clip!r})"]
    yield f"before = float(loss_of(*{first}).detach())"
    if len(training.batches) == 1:
        yield from [f"loss_of(*{first}).backward()", *clip, "optimizer.step()"]
    elif len(set(training.rates)) == 1:
        yield 'for batch in kept["batches"]:'
        yield from (f"    {line}" for line in ["optimizer.zero_grad()", "loss_of(*batch).backward()", *clip])
        yield "    optimizer.step()"
    else:
        rates = [list(one) for one in training.rates]
        yield from _wrapped(f"rates = {rates!r}")
        yield 'for batch, rate in zip(kept["batches"], rates):'
        yield from (f"    {line}" for line in ["optimizer.zero_grad()", "loss_of(*batch).backward()", *clip])
        yield "    for group, one in zip(optimizer.param_groups, rate):"
        yield '        group["lr"] = one'
        yield "    optimizer.step()"
    yield f"after = float(loss_of(*{first}).detach())"
    yield 'print("torch", torch.__version__, "loss before", before, "after", after)'
    yield f'assert after < {limit}, "{FAULTS[rise.shape]}"'


def names_in_script(rise: Rise, *, exact: bool = False) -> dict[str, str]:
    """Names in order of use: w0, w1 for weights in the optimizer's order, x for other inputs, y for results."""
    program = rise.training.program
    order = {name: f"w{at}" for at, name in enumerate(rise.training.rule.weights)}
    inside = frozenset[str]() if exact else _viewed_once(program)
    counts = {"x": 0, "y": 0, "v": 0}
    made = {name for step in program.steps for name in [*step.results, *(new for _, new in step.written)] if name}
    for step in program.steps:
        results = [name for name in [*step.results, *(new for _, new in step.written)] if name]
        for name in [*refs_in([list(step.args), dict(step.kwargs)]), *results]:
            if name not in order:
                lead = "v" if name in inside else "y" if name in made else "x"
                order[name] = f"{lead}{counts[lead]}"
                counts[lead] += 1
    return order


def _viewed_once(program: Program) -> frozenset[str]:
    """The views that are used once and never written."""
    uses: dict[str, int] = {program.target: 2}
    for step in program.steps:
        for name in [*refs_in([list(step.args), dict(step.kwargs)]), *(old for old, _ in step.written for _ in (0, 1))]:
            uses[name] = uses.get(name, 0) + 1
    return frozenset(
        name
        for step in program.steps
        if step.operation in VIEWS and len(step.results) == 1 and not step.kwargs and not step.written
        for name in step.results
        if name is not None and uses.get(name) == 1
    )


def _views_behind(program: Program) -> Program:
    """Writes each view that is used once at its place of use: ``w0.t()``."""
    inside = _viewed_once(program)
    texts: dict[str, str] = {}

    def put(leaf: Any) -> Any:
        return Ref(texts.get(leaf.name, leaf.name)) if isinstance(leaf, Ref) else leaf

    steps: list[Step] = []
    for step in program.steps:
        args = tuple(map_leaves(list(step.args), put))
        name = step.results[0] if step.results else None
        if name in inside and name is not None:
            texts[name] = f"{source(args[0])}.{VIEWS[step.operation]}({', '.join(source(one) for one in args[1:])})"
        else:
            steps.append(replace(step, args=args, kwargs=map_leaves(dict(step.kwargs), put)))
    return replace(program, steps=tuple(steps))


def _wrapped(line: str) -> list[str]:
    """Wraps a long line after a comma in brackets, or after a list of names."""
    if len(line) <= LINE_CHARACTERS_MAX:
        return [line]
    names, _, value = line.partition(" = ")
    if value == "weights":
        return ["(", *(f"    {part}" for part in textwrap.wrap(names, LINE_CHARACTERS_MAX - 8)), ") = weights"]
    wrapped = textwrap.wrap(line, LINE_CHARACTERS_MAX - 8, break_long_words=False, break_on_hyphens=False)
    return [wrapped[0], *(f"    {part}" for part in wrapped[1:])]


def _needs() -> str:
    return f"Needs torch alone ({torch.__version__} when this was made)."
