"""``steadytrain.watch``: start a watch from inside a script or a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from steadytrain.attach.entry_points import guest
from steadytrain.attach.folder_names import give_back
from steadytrain.attach.idle_options import OF_ALERTS, refuse_idle
from steadytrain.attach.messages import tell
from steadytrain.attach.options import Options, OptionsGiven
from steadytrain.attach.own_command_line import OwnCommandLine, own_command_line
from steadytrain.attach.process_watch import Attached, attach, attached, finish, tell_unwatched
from steadytrain.attach.watched_run import begin_run
from steadytrain.core.errors import UsageError
from steadytrain.core.notebook import as_card, as_html
from steadytrain.core.signatures import chosen, takes_options
from steadytrain.core.switch import VARIABLE, is_off
from steadytrain.exporters.alerts.settings import urls_of_environment
from steadytrain.storage.redaction import redact_tree
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

    from steadytrain.capture.hooks.manual_updates import Gradients, Updates
    from steadytrain.capture.step.step_batches import StepBatches
    from steadytrain.capture.step.watcher import Watcher
    from steadytrain.core.incident import Action

StepFunction = Callable[..., "torch.Tensor"]
BuildFunction = Callable[[], tuple[Any, ...]]


@takes_options(Options)
def watch(
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    step_fn: StepFunction | None = None,
    build: BuildFunction | None = None,
    **options: Unpack[OptionsGiven],
) -> Watch:
    """Watch the training in this process from here on.

    A watch that is already open is shared; this call does not change it. Under ``steadytrain run`` the options of the
    command apply; one line reports the options that the script asked for. If steadytrain cannot watch this torch
    (``steadytrain doctor``), it prints one line and the watch does nothing. With ``STEADYTRAIN=0`` in the environment
    the watch does nothing.

    Args:
        model: the module that the loop trains, wrapped (data parallel, compiled) or not. Without it steadytrain finds
            the model through the optimizers, as ``steadytrain run`` does.
        optimizer: the model's optimizer. Optimizers created or stepped later are watched too. A loop without an
            optimizer calls :meth:`Watch.update`.
        step_fn: the function ``step_fn(model, batch) -> loss`` of a loop that cannot be launched again, such as one in
            a notebook; its batches are recorded.
        build: with ``step_fn``: a function that returns ``(model, optimizer)``, or ``(model, optimizer, update)`` if
            the loop does more than ``optimizer.step()``. If both are in a module, ``replay``, ``locate`` and
            ``diagnose`` of a notebook's run launch them.
        options: the fields of :class:`steadytrain.attach.Options`:

    Raises:
        UsageError: an argument is of the wrong kind, or this script has a watch open with other options.

    Examples:
        >>> with steadytrain.watch(model, optimizer, name="first", level="light") as watch:
        ...     model(batch).square().mean().backward()
        ...     optimizer.step()
        >>> watch.steps
        {'main': 1}
    """
    if is_off() and not _is_watched():
        return _Unwatched(Path(options.get("runs_dir", RUNS_DIR_DEFAULT)), f"off by {VARIABLE}")
    import torch

    if model is not None and not isinstance(model, torch.nn.Module):
        raise UsageError(f"watch: model must be a torch.nn.Module, got {type(model).__name__}")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"watch: optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    asked = chosen(Options, {"notify": urls_of_environment(), **options}, "watch")
    refuse_idle(asked, set(options).difference(OF_ALERTS))
    try:
        command = own_command_line(step_fn, build)
        return _watched(model, optimizer, step_fn, asked, tuple(options), command)
    except UsageError:
        raise
    except Exception as error:
        tell_unwatched(error)
        return _Unwatched(Path(asked.runs_dir))


def _is_watched() -> bool:
    """Whether a watch is open here: of a command that launched this script, or one of its own."""
    watchers = sys.modules.get("steadytrain.capture.step.watcher")
    return attached() is not None or getattr(watchers, "launched", None) is not None


def _watched(
    model: torch.nn.Module | None,
    optimizer: torch.optim.Optimizer | None,
    step_fn: StepFunction | None,
    asked: Options,
    given: tuple[str, ...],
    command: OwnCommandLine,
) -> Watch:
    from steadytrain.capture.step import watcher as watchers
    from steadytrain.capture.step.step_batches import StepBatches

    step_batches = None if step_fn is None else StepBatches(step_fn)
    own = attached()
    borrowed = own.watcher if own is not None else watchers.launched
    if borrowed is not None:
        held = borrowed.step_batches
        if own is not None:
            other_step = step_batches is not None and held is not None and not held.is_of(step_batches)
            _agree(own, asked, given, other_step=other_step)
        borrowed.step_batches = held or step_batches
        return Watch(borrowed, borrowed=True, model=model)
    return _begun(model, optimizer, asked, step_batches, command)


def _begun(
    model: torch.nn.Module | None,
    optimizer: torch.optim.Optimizer | None,
    asked: Options,
    step_batches: StepBatches | None,
    own: OwnCommandLine,
) -> Watch:
    """Start a new watch, or one that does nothing if this torch cannot be watched."""
    run = begin_run(own.script, own.stem, own.argv, asked, is_module=own.is_module, typed_into=own.typed_into)
    try:
        watcher = attach(run, by_command=False).watcher
    except UsageError:
        raise
    except Exception as error:
        tell_unwatched(error)
        give_back(Path(run.run_dir))
        return _Unwatched(Path(run.run_dir))
    watcher.step_batches = step_batches
    if own.note is not None:
        tell(own.note)
    if model is not None:
        watcher.watch_model(model, optimizer)
    elif optimizer is not None:
        watcher.optimizer_made(optimizer)
    return Watch(watcher, borrowed=False, model=model)


def _agree(own: Attached, asked: Options, given: tuple[str, ...], *, other_step: bool) -> None:
    """Check another call against the open watch, which keeps its options.

    Raises:
        UsageError: the options differ, and this script itself started the open watch.
    """
    pairs = asked.differing(own.run.options, given)
    wanted = [_shown(name, here) for name, (here, _) in pairs.items()] + ["another step_fn"] * other_step
    kept = [_shown(name, there) for name, (_, there) in pairs.items()] + ["its own"] * other_step
    if not wanted:
        return
    difference = f"watch: asked for {', '.join(wanted)}, but the open watch has {', '.join(kept)}"
    if not own.by_command:
        raise UsageError(f"{difference}; close that watch first, or ask for the same")
    if not own.told_options:
        own.told_options = True
        tell(f"note: {difference} from `steadytrain run`, which is kept")


def _shown(name: str, value: Any) -> str:
    """An option with its value. Addresses and commands of alerts may hold secrets."""
    secret = name in ("notify", "on_incident")
    return f"another {name}" if secret and value else f"no {name}" if secret else f"{name} {value!r}"


class Watch:
    """A watch in this process: use it as a context manager, or call ``close``. Closing removes every hook.

    Examples:
        >>> watch = steadytrain.watch(model, optimizer, name="second")
        >>> watch
        <Watch of 'second': policy stop, steps none yet, symptoms none, state open>
        >>> watch.close()
    """

    def __init__(self, watcher: Watcher, *, borrowed: bool, model: torch.nn.Module | None = None) -> None:
        self._watcher = watcher
        self._borrowed = borrowed
        self._model = model
        self._updates: Updates | None = None

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<Watch of {self.run_dir.name!r}: {facts}>"

    def _repr_html_(self) -> str:
        """The first screen of the run so far, or what the watch itself knows before its first step."""
        facts = {**self._facts(), "folder": self.run_dir}
        try:
            return as_card(open_run(self.run_dir), f"Watch of {self.run_dir.name}", facts)
        except UsageError:
            return as_html(f"Watch of {self.run_dir.name}", facts)

    def _facts(self) -> dict[str, str]:
        own, symptoms = attached(), self._watcher.recorder.symptoms
        steps = ", ".join(f"{name} {step:,}" for name, step in self.steps.items())
        return {
            "policy": self._watcher.settings.policy,
            "steps": steps or "none yet",
            "symptoms": ", ".join(dict.fromkeys(name for name, *_ in symptoms)) or "none",
            "state": "open" if own is not None and own.watcher is self._watcher else "closed",
        }

    @property
    def run_dir(self) -> Path:
        """The run folder; it exists from the first step on."""
        return self._watcher.settings.run_dir

    @property
    @guest("measuring memory", 0)
    def memory_bytes(self) -> int:
        """Memory that steadytrain uses for recorded batches and the history of steps, in bytes."""
        return self._watcher.memory_bytes

    @property
    @guest("counting the steps", {})
    def steps(self) -> dict[str, int]:
        """Number of steps so far, by stream. A stream is one optimizer, or several that step together."""
        return {stream.name: stream.step for stream in self._watcher.streams}

    @property
    @guest("reading the ledger", ())
    def actions(self) -> tuple[Action, ...]:
        """The ledger: what steadytrain did to the run so far. ``[one.to_json() for one in watch.actions]`` in a
        checkpoint tells its readers."""
        return tuple(self._watcher.recorder.actions)

    @guest("adding a fact")
    def set_fact(self, name: str, value: object) -> None:
        """Add a fact to the run: plain JSON values. Values that look like secrets are removed."""
        self._watcher.set_fact(name, redact_tree(value))

    @guest("adding an evaluation")
    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Report losses and scores of an evaluation after the last step, by name: detectors use them."""
        self._watcher.evaluated(metrics)

    def update(
        self,
        *,
        learning_rate: float | None = None,
        loss: torch.Tensor | None = None,
        gradients: Gradients | None = None,
    ) -> AbstractContextManager[None]:
        """Without a ``torch.optim`` optimizer: put ``with watch.update():`` around the loop's own update.

        The check runs before the block, as before an optimizer's step; after the block the step is recorded.

        Args:
            learning_rate: recorded with the step.
            loss: needed where no ``backward`` is called on it (``torch.autograd.grad``).
            gradients: if they are not in ``parameter.grad``: by name, or one for each of ``model.parameters()``.

        Raises:
            RunStopped: before the block: the loss or a gradient is not finite.
            UsageError: the watch has no model, or the gradients are not the model's.
        """
        if self._model is None:
            raise UsageError("update: this watch has no model; start it with steadytrain.watch(model)")
        if self._updates is None:
            from steadytrain.capture.hooks.manual_updates import Updates

            self._updates = Updates(self._watcher, self._model)
        return self._updates.update(learning_rate, loss, gradients)

    def close(self) -> None:
        """End the watch. A watch that ``steadytrain run`` started continues.

        Raises:
            RunStopped: an update was refused, and the loop ended before the error could be raised in it.
        """
        if not self._borrowed:
            raised_before = self._watcher.stopped
            with self._watcher.guard.part("closing the run"):
                finish(self._watcher, "finished", None)
            if self._watcher.stopped is not None and raised_before is None:
                raise self._watcher.stopped

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        if self._borrowed:
            return
        with self._watcher.guard.part("keeping evidence of the failure"):
            if error is not None:
                self._watcher.script_failed(error)
        with self._watcher.guard.part("closing the run"):
            finish(self._watcher, "finished" if kind is None else "failed", None)
        if self._watcher.stopped is not None and error is not self._watcher.stopped:
            raise self._watcher.stopped


class _Unwatched(Watch):
    """Replaces a watch that could not start or is switched off: the script continues as if it had asked for none."""

    def __init__(self, run_dir: Path, state: str = "could not start") -> None:
        self._run_dir = run_dir
        self._state = state

    def _facts(self) -> dict[str, str]:
        return {"state": self._state}

    @property
    def run_dir(self) -> Path:
        return self._run_dir

    @property
    def memory_bytes(self) -> int:
        return 0

    @property
    def steps(self) -> dict[str, int]:
        return {}

    @property
    def actions(self) -> tuple[Action, ...]:
        return ()

    def set_fact(self, name: str, value: object) -> None:
        pass

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        pass

    def update(self, **_: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        pass
