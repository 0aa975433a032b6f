"""Captures the graphs that ``torch.compile`` makes in the script, so that eager or aot_eager can run them too.

In a launched process, :func:`intercept` wraps the backends before the script compiles anything. The script still runs
its own compiled code. :func:`by_backend` runs the same graphs (same operations, same graph breaks) with another
backend, and can record their inputs.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.step.input_recorder import RandomState
from steadytrain.core.torch_private import BACKEND_WRAPPER, INDUCTOR_PATCH, INDUCTOR_WRAPPER, LOOKUP_BACKEND

CALLS_MAX = 64
"""Bound on the recorded calls of compiled graphs in one step."""

CALL_BYTES_MAX = 4 << 30
"""Bound on their copied inputs, in total."""

SCRIPT, EAGER, AOT_EAGER = "script", "eager", "aot_eager"
INDUCTOR = "inductor"

DRAWING = re.compile("drop|rand|bernoulli|normal|multinomial|exponential|rrelu|scaled_dot_product|gumbel")
"""Name patterns of operations that draw random numbers. A false match costs one recompilation."""

Run = Callable[..., Any]


@dataclass
class CompiledGraph:
    """One graph from dynamo, with the function that the script's backend compiled from it."""

    number: int
    module: torch.fx.GraphModule
    backend: str
    compiled: Run
    again: Callable[[torch.fx.GraphModule, Sequence[Any]], Run]
    """The script's own backend with its own options, but with eager's random numbers."""

    by_others: dict[str, Run] = field(default_factory=dict)

    def __call__(self, *inputs: Any) -> Any:
        if _current.backend == SCRIPT:
            return self.compiled(*inputs)
        if _current.keep is not None:
            return _current.keep(self, inputs)
        return self.run(_current.backend, inputs)

    @property
    def draws(self) -> bool:
        """Whether the graph may draw random numbers, which compiled code does differently."""
        return any(DRAWING.search(str(node.target)) for node in self.module.graph.nodes if node.op.startswith("call"))

    def run(self, backend: str, inputs: Sequence[Any]) -> Any:
        """Runs the graph with ``eager``, ``aot_eager`` or the script's own backend."""
        if backend == EAGER:
            return self.module(*inputs)
        if backend == self.backend and not self.draws:
            return self.compiled(*inputs)
        if backend not in self.by_others:
            random = RandomState.take()  # a compiler may draw random numbers itself
            self.by_others[backend] = self.make(backend, self.module, inputs)
            random.restore()
        return self.by_others[backend](*inputs)

    def make(self, backend: str, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Run:
        """Compiles ``module`` (this graph or a part of it) with ``backend`` for ``inputs``."""
        if backend == EAGER:
            return module
        if backend == AOT_EAGER:
            made: Run = LOOKUP_BACKEND("aot_eager")(_copy(module), list(inputs))
            return made
        return self.again(_copy(module), list(inputs))


@dataclass(frozen=True)
class GraphCall:
    """One call of a graph: copies of its inputs, the random state, and the gradients of its outputs by number."""

    graph: CompiledGraph
    inputs: tuple[Any, ...]
    random: Tensor
    output_gradients: dict[int, Tensor]
    originals: tuple[int, ...]
    """The identity (``id``) of each original input, which shows the parameters among them."""


@dataclass
class _Current:
    asked: bool = False
    backend: str = SCRIPT
    keep: Callable[[CompiledGraph, Sequence[Any]], Any] | None = None


_current = _Current()
"""The current backend, and whether the script has called ``torch.compile``."""

graphs: list[CompiledGraph] = []
"""All graphs that the script has compiled so far, in order."""


def intercept() -> Callable[[], None]:
    """Keeps every graph that a backend compiles from now on in this process.

    Returns a function that undoes the interception.
    """
    inductor = INDUCTOR_WRAPPER.loaded()
    other = BACKEND_WRAPPER.loaded()
    undo = [_put_between(inductor, lambda wrapper: INDUCTOR)] if inductor is not None else []
    undo += [_put_between(other, lambda wrapper: str(wrapper.compiler_name))] if other is not None else []

    def put_back() -> None:
        for one in undo:
            one()
        graphs.clear()
        _current.asked = False

    return put_back


def is_used() -> bool:
    return _current.asked


@contextmanager
def by_backend(backend: str, keep: list[GraphCall] | None = None) -> Iterator[None]:
    """Runs compiled code with ``backend`` inside the block. ``keep`` collects each call with copies of its inputs."""
    before = (_current.backend, _current.keep)
    _current.backend = backend
    _current.keep = None if keep is None else _keeper(backend, keep)
    try:
        yield
    finally:
        _current.backend, _current.keep = before


def _put_between(kind: type, name_of: Callable[[Any], str]) -> Callable[[], None]:
    original = kind.__call__
    begin = kind.__init__  # type: ignore[misc]

    def asked(wrapper: Any, *args: Any, **how: Any) -> None:
        _current.asked = True
        begin(wrapper, *args, **how)

    def compile_graph(wrapper: Any, module: Any, inputs: Any, **how: Any) -> Any:
        kept = _copy(module)
        compiled = original(wrapper, module, inputs, **how)
        name = name_of(wrapper)

        def again(part: torch.fx.GraphModule, values: Sequence[Any]) -> Run:
            if name != INDUCTOR:
                made: Run = original(wrapper, part, values)
                return made
            with INDUCTOR_PATCH(fallback_random=True):
                return original(wrapper, part, values)  # type: ignore[no-any-return]

        graph = CompiledGraph(len(graphs), kept, name, compiled, again)
        graphs.append(graph)
        return graph

    def put_back() -> None:
        kind.__init__, kind.__call__ = begin, original  # type: ignore[misc, method-assign]

    kind.__init__, kind.__call__ = asked, compile_graph  # type: ignore[misc, method-assign]
    return put_back


def _keeper(backend: str, calls: list[GraphCall]) -> Callable[[CompiledGraph, Sequence[Any]], Any]:
    def keep(graph: CompiledGraph, inputs: Sequence[Any]) -> Any:
        size = sum(value.nbytes for call in calls for value in call.inputs if isinstance(value, Tensor))
        size += sum(value.nbytes for value in inputs if isinstance(value, Tensor))
        if len(calls) >= CALLS_MAX or size > CALL_BYTES_MAX:
            return graph.run(backend, inputs)
        copies = tuple(leaf(value) for value in inputs)
        random = torch.get_rng_state()
        outputs = graph.run(backend, inputs)
        gradients: dict[int, Tensor] = {}
        for number, output in enumerate(outputs if isinstance(outputs, (tuple, list)) else [outputs]):
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(_taker(gradients, number))  # type: ignore[no-untyped-call]
        calls.append(GraphCall(graph, copies, random, gradients, tuple(id(value) for value in inputs)))
        return outputs

    return keep


def _taker(gradients: dict[int, Tensor], number: int) -> Callable[[Tensor], None]:
    def take(gradient: Tensor) -> None:
        gradients[number] = gradient.detach().clone()

    return take


def leaf(value: Any) -> Any:
    """A copy of an input that is a leaf of a new autograd graph."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone(memory_format=torch.preserve_format).requires_grad_(value.requires_grad)


def _copy(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy of the graph on the same attributes, because a backend may rewrite its graph."""
    return torch.fx.GraphModule(module, copy.deepcopy(module.graph))
