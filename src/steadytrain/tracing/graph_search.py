"""Finds the first operation of a compiled graph that a backend computes differently from eager, by bisecting the graph.

The graph is cut after an operation, compiled, and compared with an eager run of the same part on the recorded inputs.
Bisection finds the first operation whose part differs. A fault that only the fusion with later operations causes does
not appear in a part, and is not named.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadytrain.core.incident import OperandRange
from steadytrain.tracing.compiled_graphs import GraphCall, leaf
from steadytrain.tracing.float64_shadow import Float64Shadows
from steadytrain.tracing.places import Line, line_in
from steadytrain.tracing.tensor_summary import summarize
from steadytrain.tracing.tracer import OperationTracer

TOLERANCE = 10.0
"""A difference is reported if it exceeds this many times eager's own distance from float64."""

INPUTS_MAX = 4


@dataclass(frozen=True)
class Outcome:
    """The outputs of a graph or a part of it, and the gradients of its inputs (None if there is none)."""

    outputs: tuple[Any, ...]
    gradients: tuple[Tensor | None, ...]


@dataclass(frozen=True)
class Apart:
    """Where two outcomes differ. ``number`` is that of the output, or of the input whose gradient differs."""

    what: str
    number: int
    not_finite: bool
    text: str


@dataclass(frozen=True)
class FirstOperation:
    """The first differing operation of the captured graph."""

    name: str
    module: str
    line: Line | None
    inputs: tuple[OperandRange, ...]
    produced: str
    compiles: int


def outcome_of(
    run: Callable[..., Any], call: GraphCall, gradients: Mapping[int, Tensor] | None, *, inputs: Sequence[Any]
) -> Outcome:
    """Runs on copies of ``inputs`` from the recorded random state, with backward if output gradients are given."""
    torch.set_rng_state(call.random)
    leaves = [leaf(value) for value in inputs]
    with torch.enable_grad():
        result = run(*leaves)
        outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if not gradients:
            return Outcome(_detached(outputs), ())
        roots = [(outputs[at], gradient) for at, gradient in gradients.items() if _differentiable(outputs[at])]
        wanted = [value for value in leaves if isinstance(value, Tensor) and value.requires_grad]
        if not roots or not wanted:
            return Outcome(_detached(outputs), ())
        found = iter(
            torch.autograd.grad([root for root, _ in roots], wanted, [one for _, one in roots], allow_unused=True)
        )
        kept = tuple(next(found) if isinstance(v, Tensor) and v.requires_grad else None for v in leaves)
    return Outcome(_detached(outputs), kept)


def in_float64(run: Callable[..., Any], call: GraphCall, gradients: Mapping[int, Tensor] | None) -> Outcome:
    """The outcome of an eager run in float64 shadows. Where a tensor has no shadow, its own value."""
    shadows = Float64Shadows()
    tracer = OperationTracer(parameters={}, method="", observer=shadows)
    with tracer:
        eager = outcome_of(run, call, gradients, inputs=call.inputs)
        outputs = tuple(_shadow(shadows, value) for value in eager.outputs)
        kept = tuple(_shadow(shadows, value) for value in eager.gradients)
    shadows.close()
    return Outcome(outputs, kept)


def apart(eager: Outcome, exact: Outcome, other: Outcome) -> Apart | None:
    """The first output, else the first gradient, in which ``other`` differs from ``eager`` beyond rounding."""
    for what, ours, reference, theirs in (
        ("output", eager.outputs, exact.outputs, other.outputs),
        ("gradient", eager.gradients, exact.gradients, other.gradients),
    ):
        for number, (one, best, two) in enumerate(zip(ours, reference, theirs, strict=False)):
            if isinstance(one, Tensor) and isinstance(two, Tensor) and one.is_floating_point():
                text = _differs(one, best if isinstance(best, Tensor) else one, two)
                if text is not None:
                    return Apart(what, number, "not finite" in text, text)
    return None


def first_operation(
    call: GraphCall, backend: str, found: Apart, gradients: Mapping[int, Tensor], *, deadline: float
) -> FirstOperation | None:
    """Bisects the graph for the first operation whose part differs. Returns None if no part does, or time is up."""
    nodes = [node for node in call.graph.module.graph.nodes if node.op.startswith("call")]
    values = _values(call, gradients)
    nodes = [node for node in nodes if isinstance(values.get(node.name, (None, None))[0], Tensor)]
    nodes = [node for node in nodes if values[node.name][0].is_floating_point()]
    compiles = 0

    def differs(at: int) -> Apart | None:
        nonlocal compiles
        compiles += 1
        node = nodes[at]
        part = _up_to(call.graph.module, node)
        gradient = values[node.name][1]
        wanted = {0: gradient} if found.what == "gradient" and gradient is not None else None
        if found.what == "gradient" and wanted is None:
            return None
        eager = outcome_of(part, call, wanted, inputs=call.inputs)
        exact = in_float64(part, call, wanted)
        leaves = [leaf(value) for value in call.inputs]
        other = outcome_of(call.graph.make(backend, part, leaves), call, wanted, inputs=call.inputs)
        seen = apart(eager, exact, other)
        return seen if seen is not None and (seen.not_finite or not found.not_finite) else None

    low, high = 0, len(nodes) - 1
    best: Apart | None = None
    while low <= high:
        if time.monotonic() > deadline:
            return None
        middle = (low + high) // 2
        seen = differs(middle)
        if seen is not None:
            best, high = seen, middle - 1
        else:
            low = middle + 1
    if best is None:
        return None
    node = nodes[low]
    inputs = tuple(
        summarize(other.name, values[other.name][0])
        for other in node.all_input_nodes[:INPUTS_MAX]
        if isinstance(values.get(other.name, (None, None))[0], Tensor)
    )
    stack = node.meta.get("stack_trace") or ""
    produced = "nan" if "NaN" in best.text else "inf"
    return FirstOperation(name_of(node), module_of(node), line_in(stack), inputs, produced, compiles)


def name_of(node: torch.fx.Node) -> str:
    """The Python name of a dynamo operation: ``torch.log``, ``Tensor.float``."""
    if node.op == "call_method":
        return f"Tensor.{node.target}"
    if node.op == "call_module" or isinstance(node.target, str):
        return str(node.target)
    module = getattr(node.target, "__module__", None) or ""
    name = getattr(node.target, "__name__", str(node.target))
    place = {"_operator": "operator", "torch._C._nn": "torch.nn.functional"}.get(module, module)
    return f"{place}.{name}" if place and place != "builtins" else name


def module_of(node: torch.fx.Node) -> str:
    """The path, below the compiled module, of the module whose forward called the operation."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(next(reversed(stack.values()))[0]) if stack else ""
    _, _, rest = path.replace("._modules", "").partition("]")
    parts = rest.replace("['", ".").replace("']", "").replace("[", ".").replace("]", "").split(".")
    return ".".join(part for part in parts if part)


def _up_to(module: torch.fx.GraphModule, last: torch.fx.Node) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    reached = False
    for node in module.graph.nodes:
        if node.op == "output":
            break
        if not reached or node.op == "placeholder":
            made[node] = graph.node_copy(node, lambda other: made[other])
        reached = reached or node is last
    graph.output((made[last],))
    return torch.fx.GraphModule(module, graph)


def _values(call: GraphCall, gradients: Mapping[int, Tensor]) -> dict[str, tuple[Any, Tensor | None]]:
    """The result of every operation in an eager run, and its gradient if backward reached it."""
    values: dict[str, Any] = {}

    class Keeping(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            result = super().run_node(n)
            values[n.name] = result
            if isinstance(result, Tensor) and result.requires_grad and not result.is_leaf:
                result.retain_grad()
            return result

    torch.set_rng_state(call.random)
    with torch.enable_grad():
        outputs = Keeping(call.graph.module).run(*(leaf(value) for value in call.inputs))
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        roots = [(outputs[at], gradient) for at, gradient in gradients.items() if _differentiable(outputs[at])]
        if roots:
            torch.autograd.backward([root for root, _ in roots], [one for _, one in roots])
    found = {}
    for name, value in values.items():
        kept = isinstance(value, Tensor) and value.requires_grad and (value.is_leaf or value.retains_grad)
        found[name] = (value.detach() if isinstance(value, Tensor) else value, value.grad if kept else None)
    return found


def _differs(eager: Tensor, exact: Tensor, other: Tensor) -> str | None:
    if eager.shape != other.shape:
        return f"{list(other.shape)} instead of {list(eager.shape)}"
    one, best, two = eager.to(torch.float64), exact.to(torch.float64), other.to(torch.float64)
    good, seen = torch.isfinite(one), torch.isfinite(two)
    if bool((good & ~seen).any()):
        word = "NaN" if bool((torch.isnan(two) & good).any()) else "Inf"
        return f"not finite: {int((good & ~seen).sum())} of {one.numel()} values are {word}"
    if bool((seen & ~good).any()):
        return f"finite where eager is not: {int((seen & ~good).sum())} of {one.numel()} values"
    if not bool(good.any()):
        return None
    distance = float((one - two)[good].abs().max())
    error = (one - best)[good].abs()
    error = error[torch.isfinite(error)]
    size = float(one[good].abs().max())
    own = max(float(error.max()) if error.numel() else 0.0, torch.finfo(eager.dtype).eps * size)
    if distance <= TOLERANCE * own or math.isnan(distance):
        return None
    return f"off by {distance:.3g}, where eager is off by {own:.3g} from float64"


def _differentiable(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _shadow(shadows: Float64Shadows, value: Any) -> Any:
    known = shadows.value(value) if isinstance(value, Tensor) else None
    return value if known is None else known.clone()


def _detached(outputs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value.detach() if isinstance(value, Tensor) else value for value in outputs)
