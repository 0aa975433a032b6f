"""All patches of torch in one place: how they are applied and how they are removed.

| place | what for |
|---|---|
| ``torch.autograd._engine_run_backward`` | the loss: the root of each backward |
| global optimizer step pre- and post-hooks (public) | the gate, and the end of a step |
| ``Optimizer.__init__`` | finding the model before its first forward |
| ``_BaseDataLoaderIter.__next__``, ``_next_index`` | the fetched batch, and its sample indices |
| ``GradScaler.step``, ``GradScaler.scale`` | steps that the scaler skips, and its scale |
| ``torch.nn.utils.clip_grad_norm_``, ``clip_grad_value_`` | gradients before clipping |
| ``Optimizer.zero_grad``, ``Module.zero_grad`` | gradients that the script discards |
| ``load_state_dict`` of both, ``Optimizer.state_dict`` | what is restored and what is saved (``loaded_states.py``) |
| ``torch.save``, ``safetensors.torch.save_file``, ``distributed.checkpoint.save`` | ``saved_checkpoints.py`` |
| ``torch._C._nn.mse_loss`` and other losses, during an evaluation | its losses (``loss_calls.py``) |
| ``torch.compile`` | the module that a compiled model is called through |
| ``Module.__reduce_ex__`` | copies and pickles of a watched module hold no hook of ours (``copies.py``) |
| ``torch.jit._recursive.create_script_module`` | a watched module can be scripted (``scripting.py``) |
| ``saved_tensors_hooks.__enter__``, ``SavedTensor.register_hooks``, older torch only | ``saved_hooks.py`` |

There are no global module hooks: torch.compile guards on them (their removal causes a recompile) and warns about them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from steadytrain.capture.hooks.copies import put_reduce
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.hooks.guarded_events import MISSING, GuardedEvents
from steadytrain.capture.hooks.import_hook import after_import
from steadytrain.capture.hooks.module_hooks import (
    ModuleHook,
    OptimizerHook,
    Report,
    clip_wrapper,
    hook_after,
    hook_before,
    nothing,
    zero_grad_wrapper,
)
from steadytrain.capture.hooks.outermost_steps import OutermostSteps
from steadytrain.capture.hooks.saved_hooks import put_saved_hooks
from steadytrain.capture.hooks.scripting import put_script
from steadytrain.capture.snapshots.loaded_states import StateEvents, state_wrappers
from steadytrain.capture.snapshots.saved_checkpoints import SaveEvents, put_savers
from steadytrain.core.torch_names import MissingNameError
from steadytrain.core.torch_private import (
    CALL,
    COMPILED_CALL,
    COMPILER,
    ENGINE,
    NEXT_BATCH,
    NEXT_INDEX,
    SKIP_RULES,
    TRACING,
    require,
)

_SKIPPED_BY_COMPILER = (
    *("capture.incident", "capture.looks", "capture.machine", "capture.settings", "capture.snapshots", "capture.step"),
    *(
        "capture.hooks.clipping",
        "capture.hooks.copies",
        "capture.hooks.fail_open",
        "capture.hooks.guarded_events",
        "capture.hooks.hooked_modules",
    ),
    *("capture.hooks.manual_updates", "capture.hooks.model_discovery", "capture.hooks.outermost_steps"),
    *("capture.hooks.patches", "capture.hooks.saved_hooks", "capture.hooks.script_errors"),
    *("capture.hooks.scripting", "capture.hooks.unseen"),
    *("capture.tensors.activations", "capture.tensors.dense", "capture.tensors.gpu_state"),
    *("capture.tensors.gradient_scaling", "capture.tensors.measurement_schedule"),
    *("capture.tensors.optimizer_state", "capture.tensors.precision"),
    *("capture.tensors.statistics", "core.torch_names", "core.torch_private", "detection"),
    *("exporters", "integrations"),
    *("guard", "trial_runs.changes", "trial_runs.function_stand_ins", "trial_runs.launched_script"),
)
"""All our modules except those whose code a graph may contain (``hooks.module_hooks``, ``hooks.loss_calls``,
``tensors.in_graph``)."""


class Events(StateEvents, SaveEvents, Protocol):
    """The events that the patches report. :class:`GuardedEvents` keeps their errors from the script."""

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None: ...
    def step_begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any: ...
    def step_ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None: ...
    def backward_begins(self, roots: Any, *, accumulates: bool, derives: bool = False) -> bool: ...
    def backward_failed(self, error: Exception) -> None: ...
    def backward_ends(self) -> None: ...
    def samples_drawn(self, iterator: Any, indices: Any) -> None: ...
    def fetch_begins(self, iterator: Any) -> Any: ...
    def fetch_ends(self, iterator: Any, batch: Any) -> Any: ...
    def scaler_step_begins(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None: ...
    def scaler_step_ends(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None: ...
    def scaler_scales(self, scaler: Any) -> None: ...
    def gradients_zeroed(self, owner: Any) -> None: ...
    def clip(self, original: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any: ...
    def clip_by_value(self, original: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any: ...
    def compile_called(self, subject: Any, result: Any, how: dict[str, Any]) -> None: ...
    def forward_begins(self, module: nn.Module, args: Any, kwargs: Any) -> Any: ...
    def forward_ends(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None: ...


class AtRest(Protocol):
    """The events of a step that is not recorded."""

    def ignores(self, roots: Any, how: dict[str, Any]) -> bool:
        """Whether the backward from ``roots`` needs no report."""

    def step_begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any: ...
    def step_ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None: ...


class Patches:
    """Applies all patches or none on construction; :meth:`remove` removes them all.

    Raises:
        MissingNameError: this torch lacks a name that a patch needs; no patch was applied.
    """

    def __init__(self, events: Events, guard: Guard) -> None:
        self._undo: list[Callable[[], None]] = []
        self._guard = guard
        self._at_rest: AtRest | None = None
        self._ignores: Callable[..., bool] | None = None
        self._zero_grads: list[tuple[Any, Any, Any]] = []
        try:
            self._put_all(GuardedEvents(events, guard))
        except Exception:
            self.remove()
            raise

    def _put_all(self, events: GuardedEvents) -> None:
        require()
        self._put_hooks(events)
        self._put_backward(events)
        self._put_optimizer_init(events)
        self._put_fetch(events)
        self._put_scaler(events)
        self._put_clip(events)
        self._put_zero_grad(events)
        self._put_compile(events)
        self._undo += [put_reduce(), put_script(), put_saved_hooks()]
        for owner, name, wrapper in state_wrappers(events, self._guard):
            self._replace(owner, name, wrapper)
        put_savers(events, self._guard, self._replace, self._after_import)
        self._after_import(COMPILER, self._guard.wrap(keep_compiler_out))

    def remove(self) -> None:
        if self._at_rest is not None:
            self.rest(None)
        for undo in reversed(self._undo):
            with self._guard.part("removing a patch"):
                undo()
        self._undo.clear()

    def rest(self, at_rest: AtRest | None) -> None:
        """Report only to ``at_rest``, as cheaply as possible, until None undoes that: the run rests."""
        self._at_rest = at_rest
        self._ignores = self._guard.wrap(at_rest.ignores, otherwise=False) if at_rest is not None else None
        if not self._steps.nested:
            before, after = self._optimizer_hooks
            before.function = at_rest.step_begins if at_rest is not None else self._steps.begins
            after.function = at_rest.step_ends if at_rest is not None else self._steps.ends
        for owner, original, wrapper in self._zero_grads:
            now, then = (wrapper, original) if at_rest is not None else (original, wrapper)
            if owner.zero_grad is now:
                owner.zero_grad = then

    def _replace(self, owner: Any, name: str, replacement: Any) -> None:
        original = getattr(owner, name)

        def undo() -> None:
            # Other code may have wrapped our wrapper since; then removing ours would remove theirs too.
            if getattr(owner, name) is replacement:
                setattr(owner, name, original)

        setattr(owner, name, replacement)
        self._undo.append(undo)

    def _after_import(self, name: str, callback: Callable[[], None]) -> None:
        self._undo.append(after_import(name, callback))

    def _put_hooks(self, events: GuardedEvents) -> None:
        steps = self._steps = OutermostSteps(events.step_begins, events.step_ends)
        report = self._guard.report
        self._optimizer_hooks = OptimizerHook(steps.begins, report), OptimizerHook(steps.ends, report)
        before = register_optimizer_step_pre_hook(self._optimizer_hooks[0])
        after = register_optimizer_step_post_hook(self._optimizer_hooks[1])
        self._undo += [before.remove, after.remove]

    def _put_backward(self, events: GuardedEvents) -> None:
        original = ENGINE.now()

        is_traced = self._guard.wrap(being_traced, otherwise=True)

        @functools.wraps(original)
        def run_backward(roots: Any, *args: Any, **kwargs: Any) -> Any:
            ignores = self._ignores
            if ignores is not None and ignores(roots, kwargs):
                return original(roots, *args, **kwargs)
            if is_traced(roots):
                return original(roots, *args, **kwargs)
            accumulates = bool(kwargs.get("accumulate_grad", False))
            derives = not accumulates and _are_gradients(*args[2:4])
            outermost = events.backward_begins(roots, accumulates=accumulates, derives=derives)
            try:
                return original(roots, *args, **kwargs)
            except Exception as error:
                if outermost:
                    events.backward_failed(error)
                raise
            finally:
                if outermost:
                    events.backward_ends()

        self._replace(ENGINE.owner(), ENGINE.attribute, run_backward)

    def _put_optimizer_init(self, events: GuardedEvents) -> None:
        original = torch.optim.Optimizer.__init__

        @functools.wraps(original)
        def init(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            events.optimizer_made(self)

        self._replace(torch.optim.Optimizer, "__init__", init)

    def _put_fetch(self, events: GuardedEvents) -> None:
        original = NEXT_BATCH.now()

        @functools.wraps(original)
        def fetch(self: Any) -> Any:
            batch = events.fetch_begins(self)
            if batch is not MISSING:
                return batch
            batch = original(self)
            other = events.fetch_ends(self, batch)
            return batch if other is MISSING else other

        draw = NEXT_INDEX.now()

        @functools.wraps(draw)
        def next_index(self: Any) -> Any:
            indices = draw(self)
            events.samples_drawn(self, indices)
            return indices

        self._replace(NEXT_BATCH.owner(), NEXT_BATCH.attribute, fetch)
        self._replace(NEXT_INDEX.owner(), NEXT_INDEX.attribute, next_index)

    def _put_scaler(self, events: GuardedEvents) -> None:
        step, scale = torch.amp.GradScaler.step, torch.amp.GradScaler.scale

        @functools.wraps(step)
        def scaler_step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            events.scaler_step_begins(self, optimizer)
            result = step(self, optimizer, *args, **kwargs)
            events.scaler_step_ends(self, optimizer)
            return result

        @functools.wraps(scale)
        def scaler_scale(self: Any, outputs: Any) -> Any:
            result = scale(self, outputs)
            events.scaler_scales(self)
            return result

        self._replace(torch.amp.GradScaler, "step", scaler_step)
        self._replace(torch.amp.GradScaler, "scale", scaler_scale)

    def _put_clip(self, events: GuardedEvents) -> None:
        for name, event in (("clip_grad_norm_", "clip"), ("clip_grad_value_", "clip_by_value")):
            original = getattr(torch.nn.utils, name)
            stand_in = clip_wrapper(original, events.around(event, original))
            self._replace(torch.nn.utils.clip_grad, name, stand_in)
            self._replace(torch.nn.utils, name, stand_in)

    def _put_zero_grad(self, events: GuardedEvents) -> None:
        for owner in (torch.optim.Optimizer, nn.Module):
            original, wrapper = owner.zero_grad, zero_grad_wrapper(owner.zero_grad, events.gradients_zeroed)
            self._zero_grads.append((owner, original, wrapper))
            self._replace(owner, "zero_grad", wrapper)

    def _put_compile(self, events: GuardedEvents) -> None:
        original = torch.compile

        @functools.wraps(original)
        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            result = original(model, *args, **kwargs)
            events.compile_called(model, result, kwargs)
            owner = getattr(model, "__self__", None)
            if isinstance(owner, nn.Module) and getattr(model, "__name__", "") == CALL.attribute:
                call = _watched_call(owner, result, events)  # module.compile() keeps it as its call
                self._undo.append(functools.partial(_unwatch_call, weakref.ref(owner), weakref.ref(call)))
                return call
            return result

        self._replace(torch, "compile", compile)


class ModuleHooks:
    """The hooks on one module's calls."""

    def __init__(self, module: nn.Module, events: Events, report: Report) -> None:
        self._events = events
        self._before, self._after = ModuleHook(events.forward_begins, report), ModuleHook(events.forward_ends, report)
        self._handles = (
            hook_before(module, self._before, with_kwargs=True),
            hook_after(module, self._after, with_kwargs=True, always_call=True),
        )

    def redirect(self, called: Callable[..., None] | None) -> None:
        """Call only ``called`` when the module is called, as cheaply as possible; None undoes that."""
        self._before.function = called or self._events.forward_begins
        self._after.function = nothing if called is not None else self._events.forward_ends

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def being_traced(roots: Any) -> bool:
    """Whether a compiler is tracing. Its backward runs on fake tensors; a wrapper that touches it makes torch.compile
    fall back to eager without a message."""
    if torch.compiler.is_compiling() or TRACING() is not None:
        return True
    first = roots[0] if isinstance(roots, (tuple, list)) and roots else roots
    return type(first).__name__ in ("FakeTensor", "FunctionalTensor")


@functools.cache
def keep_compiler_out() -> None:
    """Make torch.compile skip our frames when they run between two graphs of a compiled function.

    Called once per process: the compiler's list only grows, and each entry makes it recompile one long regular
    expression.
    """
    with contextlib.suppress(MissingNameError):  # this may run inside the script's own import of the compiler
        for name in _SKIPPED_BY_COMPILER:
            SKIP_RULES(f"steadytrain.{name}")


def _unwatch_call(module: weakref.ref[nn.Module], watched: weakref.ref[Callable[..., Any]]) -> None:
    """Restore the module's own compiled call, if it still has our wrapper."""
    owner, call = module(), watched()
    if owner is not None and call is not None and COMPILED_CALL.on(owner) is call:
        COMPILED_CALL.put(owner, inspect.unwrap(call, stop=lambda one: one is not call))


def _watched_call(module: nn.Module, compiled: Callable[..., Any], events: GuardedEvents) -> Callable[..., Any]:
    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return compiled(*args, **kwargs)
        changed = events.forward_begins(module, args, kwargs)
        if changed is not None:
            args, kwargs = changed
        output = None
        try:
            output = compiled(*args, **kwargs)
        finally:
            events.forward_ends(module, args, kwargs, output)
        return output

    return call


def _are_gradients(create_graph: Any = True, inputs: Any = (), *_: Any) -> bool:
    """Whether ``torch.autograd.grad`` is asked for the gradients of parameters, as for an update, and not of inputs."""
    asked = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    return not create_graph and bool(asked) and all(isinstance(one, nn.Parameter) for one in asked)
