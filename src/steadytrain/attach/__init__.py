"""The public entry points ``watch`` and ``run_target``, and the start hook for child processes.

This room only puts the others together: it measures nothing, and imports no torch before the script does.

``watch`` attaches from inside a script, ``run_target`` runs a script under watch, and ``arm_child`` attaches to the
processes that a watched script starts.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import multiprocessing.util
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from steadytrain.capture.hooks.import_hook import after_import, forget_imports
from steadytrain.capture.hooks.launch import ATTACH_VARIABLE, Target, arm_children, execute
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Policy
from steadytrain.core.levels import LEVEL_DEFAULT, find_level
from steadytrain.core.torch_private import require
from steadytrain.core.version import __version__
from steadytrain.exporters import TO_DEFAULT, check_to
from steadytrain.storage.redaction import redact_arguments, redact_tree
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT

if TYPE_CHECKING:
    import torch

    from steadytrain.capture.hooks.manual_updates import Gradients, Updates
    from steadytrain.capture.step.watcher import Watcher

POLICIES: tuple[Policy, ...] = ("stop", "observe")
COMPILED = ("edges", "inside")

_START_FOLDER = Path(__file__).parent / "start"
"""Its ``sitecustomize`` arms the processes that a watched script starts."""

_active: Watcher | None = None
_made: dict[Path, tuple[Path, ...]] = {}
"""Folders that this process has made for the name of a run, each run's own first."""


@dataclass(frozen=True)
class Options:
    """What a person chooses for a run.

    Args:
        policy: ``stop`` or ``observe``.
        level: how much is recorded, one of ``steadytrain.core.levels``.
        runs_dir: folder of run folders.
        name: name of the run, by default the script's with the time.
        state_mb: bound on model and optimizer state in a bundle, in 10^6 bytes.
        to: where the run goes besides its folder: names of other tools, ``auto`` or ``none``
            (``steadytrain.exporters``).
        compiled: where outputs of modules in compiled code are seen: at its ``edges``, or ``inside``, computed by the
            compiled graphs (:func:`watch`).
        continues: the run that this one goes on from, ``RUN`` or ``RUN@STEP`` (:func:`watch`).
        rewind_mb: disk, in 10^6 bytes, for the tape and the snapshots that make the last steps replayable; 0: none.
        keep_rewind: they stay although the run ended well.

    Raises:
        UsageError: one of them is none of its kind.
    """

    policy: Policy = "stop"
    level: str = LEVEL_DEFAULT
    runs_dir: str | Path = RUNS_DIR_DEFAULT
    name: str | None = None
    state_mb: int = 4096
    to: tuple[str, ...] = TO_DEFAULT
    compiled: str = "edges"
    continues: str | None = None
    rewind_mb: int = 4096
    keep_rewind: bool = False

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UsageError(f"{self.policy!r}: no such policy; one of {', '.join(POLICIES)}")
        level = find_level(self.level)
        if self.compiled not in COMPILED:
            raise UsageError(f"{self.compiled!r}: not where compiled code is seen; one of {', '.join(COMPILED)}")
        if self.compiled == "inside" and level.modules_every is None:
            raise UsageError(f"compiled inside: the level {level.name} looks at no outputs; take standard or full")
        check_to(self.to)
        name = self.name
        if name is not None and (not name or name != Path(name).name or name.startswith(".")):
            raise UsageError(f"{name!r}: a run's name is one plain folder name; --runs-dir says where it lies")
        if self.state_mb < 0:
            raise UsageError(f"{self.state_mb}: the bound on kept state must not be negative")
        if self.rewind_mb < 0:
            raise UsageError(f"{self.rewind_mb}: the bound on disk for rewinding must not be negative")


def __getattr__(name: str) -> Any:
    if name == "RunStopped":  # defined beside the gate, which needs torch
        from steadytrain.capture.step.watcher import RunStopped

        return RunStopped
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Watch:
    """A watch in this process: a context manager, or to be closed by hand. Closing takes every hook out."""

    def __init__(self, watcher: Watcher, *, borrowed: str, model: torch.nn.Module | None = None) -> None:
        self._watcher = watcher
        self._borrowed = borrowed
        self._model = model
        self._updates: Updates | None = None

    @property
    def run_dir(self) -> Path:
        """The run folder; it exists from the first step on."""
        return self._watcher.settings.run_dir

    @property
    def memory_bytes(self) -> int:
        """What steadytrain holds in memory: recorded batches and the history of steps."""
        return self._watcher.memory_bytes

    @property
    def steps(self) -> dict[str, int]:
        """Steps so far, by the name of their stream: one for each optimizer, or for several that step together."""
        return {stream.name: stream.step for stream in self._watcher.streams}

    def set_fact(self, name: str, value: Any) -> None:
        """Put one more fact into the run: plain JSON values. What looks like a secret is taken out."""
        self._watcher.set_fact(name, redact_tree(value))

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Tell of losses and scores of an evaluation after the last step, by name: detectors compare with them."""
        self._watcher.evaluated(metrics)

    def update(
        self,
        *,
        learning_rate: float | None = None,
        loss: torch.Tensor | None = None,
        gradients: Gradients | None = None,
    ) -> AbstractContextManager[None]:
        """Where no ``torch.optim`` optimizer steps: ``with watch.update():`` around the loop's own update.

        The gate stands before the block, as before an optimizer's step; after the block the step is recorded.

        Args:
            learning_rate: recorded with the step.
            loss: needed where no ``backward`` is called on it (``torch.autograd.grad``).
            gradients: where they do not lie in ``parameter.grad``: by name, or one for each of ``model.parameters()``.

        Raises:
            RunStopped: at the block's begin: the loss or a gradient is not finite.
            UsageError: the watch was begun without a model, or gradients that are not the model's.
        """
        if self._model is None:
            raise UsageError("update: this watch knows no model; begin it with steadytrain.watch(model)")
        if self._updates is None:
            from steadytrain.capture.hooks.manual_updates import Updates

            self._updates = Updates(self._watcher, self._model)
        return self._updates.update(learning_rate, loss, gradients)

    def close(self) -> None:
        """End the watch. A watch that ``steadytrain run`` began goes on: it is not ours to end.

        Raises:
            RunStopped: an update was refused and the loop ended before that could be raised in it.
        """
        if not self._borrowed:
            raised_before = self._watcher.stopped
            _finish(self._watcher, "finished", None)
            if self._watcher.stopped is not None and raised_before is None:
                raise self._watcher.stopped

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        if self._borrowed:
            return
        if error is not None:
            self._watcher.script_failed(error)
        _finish(self._watcher, "finished" if kind is None else "failed", None)
        if self._watcher.stopped is not None and error is not self._watcher.stopped:
            raise self._watcher.stopped


class _Unwatched(Watch):
    """Stands for a watch that could not begin: the script goes on as if it had not asked for one."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    @property
    def run_dir(self) -> Path:
        return self._run_dir

    @property
    def memory_bytes(self) -> int:
        return 0

    @property
    def steps(self) -> dict[str, int]:
        return {}

    def set_fact(self, name: str, value: Any) -> None:
        pass

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        pass

    def update(self, **_: Any) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        pass


def watch(
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    policy: Policy = "stop",
    runs_dir: str | Path = RUNS_DIR_DEFAULT,
    name: str | None = None,
    state_mb: int = Options.state_mb,
    level: str = LEVEL_DEFAULT,
    to: Sequence[str] = TO_DEFAULT,
    compiled: str = Options.compiled,
    continues: str | None = None,
    rewind_mb: int = Options.rewind_mb,
    keep_rewind: bool = Options.keep_rewind,
    step_fn: Callable[..., torch.Tensor] | None = None,
) -> Watch:
    """Watch the training in this process from here on.

    Args:
        model: the module that the loop trains, wrapped (data parallel, compiled) or not. Without it the model is
            found behind the optimizers, as ``steadytrain run`` does it.
        optimizer: the one that updates it. All that are made or stepped later are seen as well. A loop without any
            calls :meth:`Watch.update`.
        policy: ``stop`` refuses an update whose loss or gradients are not finite, writes an incident and raises
            :class:`RunStopped` (a ``SystemExit`` with status 70); ``observe`` only records.
        runs_dir: folder of run folders.
        name: name of the run, by default the script's with the time.
        state_mb: bound on model and optimizer state in a bundle, in 10^6 bytes.
        level: how much is recorded: ``light``, ``standard`` or ``full`` (``steadytrain.core.levels``).
        to: where the run goes besides its folder: ``tensorboard``, ``wandb``, ``mlflow``; ``auto``, the default, joins
            a run of theirs that is active already; ``none`` sends nothing.
        compiled: where outputs of modules in compiled code are seen: at its ``edges``, the default, or ``inside``: the
            graphs of what is compiled from here on compute them too, in every step. No graph or break more; but where
            the compiler then fuses differently, the last bits of the training change (``docs/signals.md``).
        continues: the watched run that this one goes on from, from its last applied step or, as ``RUN@STEP``, from that
            of the checkpoint. Steps are counted on from there, and detectors judge by that run's last steps.
        rewind_mb: disk, in 10^6 bytes, for the tape and the snapshots that make the last steps replayable; 0: none.
        keep_rewind: they stay although the run ended well.
        step_fn: where this loop cannot be launched again: the function ``step_fn(model, batch) -> loss`` that it calls;
            its batches are recorded, so that ``steadytrain replay --step-fn --build`` can do its steps
            (``docs/replay.md``).

    Where this torch cannot be watched (``steadytrain doctor``), one line says so, and the watch does nothing.

    Raises:
        UsageError: an argument is of the wrong kind.
    """
    import torch

    if model is not None and not isinstance(model, torch.nn.Module):
        raise UsageError(f"watch: model must be a torch.nn.Module, got {type(model).__name__}")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"watch: optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    to = check_to(to)
    options = Options(policy, level, runs_dir, name, state_mb, to, compiled, continues, rewind_mb, keep_rewind)
    from steadytrain.capture.step import watcher as watchers
    from steadytrain.capture.step.step_batches import StepBatches

    step_batches = None if step_fn is None else StepBatches(step_fn)
    borrowed = _active or watchers.launched
    if borrowed is not None:
        borrowed.step_batches = step_batches
        return Watch(borrowed, borrowed="steadytrain run", model=model)
    script = sys.argv[0] or "python"
    settings = _settings(script, Path(script).stem or "run", [*sys.argv], options, is_module=False)
    try:
        watcher = _attach(settings)
    except UsageError:
        raise
    except Exception as error:
        _tell_unwatched(error)
        _give_back(Path(settings["run_dir"]))
        return _Unwatched(Path(settings["run_dir"]))
    watcher.step_batches = step_batches
    if model is not None:
        watcher.watch_model(model, optimizer)
    elif optimizer is not None:
        watcher.optimizer_made(optimizer)
    return Watch(watcher, borrowed="", model=model)


def run_target(target: Target, options: Options, *, guest: Callable[[Watcher], None] | None = None) -> int:
    """Run ``target`` under watch; returns the exit status: the script's, or 70 when an update was refused.

    ``guest`` is called with the watcher once that stands, and may let something follow the steps beside it.
    """
    settings = _settings(target.name, target.stem, target.command, options, is_module=target.is_module)
    arm_children(settings, _START_FOLDER)
    tell(f"watching {' '.join(redact_arguments(target.command))} (policy {options.policy}) -> {settings['run_dir']}")
    after_import("torch", lambda: _arm(settings, guest))
    return execute(target, lambda how, status, error: _finish_run(settings, how, status, error))


def arm_child() -> None:
    """Attach to a process that a watched script started. Called by the start hook once torch is imported."""
    settings = json.loads(os.environ[ATTACH_VARIABLE])
    if settings["pid"] == os.getpid():
        return  # the watched script itself: armed by run_target
    _arm(settings)
    if _active is not None:
        watcher = _active
        # A multiprocessing child leaves through os._exit: atexit never runs there, its own finalizers do.
        multiprocessing.util.Finalize(None, lambda: watcher.close(ended="finished"), exitpriority=10)


def tell(text: str) -> None:
    """One message of ours, on stderr: stdout is the script's. A bar of tqdm that stands there keeps its line."""
    start = "\n" if _is_bar_open() else ""
    print(f"{start}steadytrain: {text}", file=sys.stderr, flush=True)


def _is_bar_open() -> bool:
    bars = getattr(getattr(sys.modules.get("tqdm.std"), "tqdm", None), "_instances", ())
    return any(not getattr(bar, "disable", True) for bar in list(bars))


def _arm(settings: dict[str, Any], guest: Callable[[Watcher], None] | None = None) -> None:
    try:
        watcher = _attach(settings)
        if guest is not None:
            guest(watcher)
    except Exception as error:
        _tell_unwatched(error)


def _tell_unwatched(error: Exception) -> None:
    """Arming is all or nothing: what was put in before ``error`` came is taken out, and one line says why."""
    tell(f"warning: could not attach ({type(error).__name__}: {error}); training goes on unwatched")
    if _active is not None:
        try:
            _finish(_active, "failed", None)
        except Exception as another:
            tell(f"warning: what was attached stays ({type(another).__name__}: {another})")


def _attach(settings: dict[str, Any]) -> Watcher:
    global _active
    require()
    from steadytrain.capture.settings import Settings
    from steadytrain.capture.step.watcher import Watcher
    from steadytrain.detection.run_recorder import recording
    from steadytrain.exporters.run_exports import Exports
    from steadytrain.grouping.catalog import broken, detectors
    from steadytrain.tracing.investigator import StepInvestigator

    watcher = Watcher(
        Settings(
            run_dir=Path(settings["run_dir"]),
            run_name=settings["description"]["name"],
            policy=settings["policy"],
            level=find_level(settings["level"]),
            state_bytes_max=settings["state_bytes_max"],
            in_graph=settings["compiled"] == "inside",
            continues=settings["continues"],
            rewind_bytes_max=settings["rewind_bytes_max"],
            keep_rewind=settings["keep_rewind"],
            description=settings["description"],
            diff=settings["diff"],
        ),
        tell=tell,
        record=recording(detectors(), Exports(settings["to"], tell=tell)),
        investigator=StepInvestigator(),
    )
    _active = watcher
    for plug_in in broken():
        tell(f"warning: the detector plug-in {plug_in.entry_point} is left out: {plug_in.why}")
    atexit.register(_finish_at_exit, watcher)
    _forget_in_children(watcher)
    return watcher


def _forget_in_children(watcher: Watcher) -> None:
    """A forked child does not train for us. What is registered stays for ever and must not keep the watcher."""
    reference = weakref.ref(watcher)

    def forget() -> None:
        kept = reference()
        if kept is not None:
            kept.forget()

    os.register_at_fork(after_in_child=forget)


def _finish(watcher: Watcher, how: str, status: int | None) -> None:
    global _active
    if _active is watcher:
        _active = None
    forget_imports()
    watcher.close(ended=how, exit_status=status)
    if watcher.settings.description.get("pid") == os.getpid():
        _give_back(watcher.settings.run_dir)  # else it is that of the process that began the run
    atexit.unregister(_finish_at_exit)


def _finish_at_exit(watcher: Watcher) -> None:
    """The process ends with its watch still open: a worker of a launcher, or a script that never closed it."""
    # Python has just shown what ended the script. In a session typed by hand that may be anything, long ago.
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    if error is not None:
        watcher.script_failed(error)
    _finish(watcher, "finished" if error is None else "failed", None)


def _finish_run(settings: dict[str, Any], how: str, status: int | None, error: BaseException | None) -> int | None:
    """The script is over: settle what is open, say what was seen, and choose the exit status."""
    from steadytrain.detection.summary import summary

    watcher = _active
    if watcher is not None:
        if error is not None:
            watcher.script_failed(error)
        if how != "finished":
            watcher.abandon_rerun(f"the script {how} before it reached the optimizer again")
        _finish(watcher, how, status)
    stopped = _stopped_elsewhere(Path(settings["run_dir"])) or (watcher is not None and watcher.stopped is not None)
    for line in summary(watcher, Path(settings["run_dir"])):
        tell(line)
    _give_back(Path(settings["run_dir"]))
    return 70 if stopped else None


def _stopped_elsewhere(run_dir: Path) -> bool:
    """Whether a process that the script started refused an update."""
    try:
        run = open_run(run_dir)
        return run.ended == "stopped" or any(open_run(rank).ended == "stopped" for rank in run.ranks)
    except UsageError:
        return False


def _settings(script: str, stem: str, command: list[str], options: Options, *, is_module: bool) -> dict[str, Any]:
    """All a watcher needs, as JSON, so that child processes get the same."""
    from steadytrain.capture.incident.git import git_diff, git_state

    continues = None
    if options.continues is not None:
        from steadytrain.storage.continued_run import which_run

        continues = which_run(options.continues, Path(options.runs_dir))
    folder = Path.cwd() if is_module else Path(script).absolute().parent
    name = options.name or f"{stem}-{_start_stamp()}"
    run_dir = _free_folder(Path(options.runs_dir).absolute(), name, named=options.name is not None)
    return {
        "run_dir": str(run_dir),
        "policy": options.policy,
        "level": options.level,
        "to": list(options.to),
        "compiled": options.compiled,
        "continues": continues,
        "state_bytes_max": options.state_mb * 1_000_000,
        "rewind_bytes_max": options.rewind_mb * 1_000_000,
        "keep_rewind": options.keep_rewind,
        "pid": os.getpid(),
        "diff": git_diff(folder),
        "description": {
            "name": run_dir.name,
            "argv": redact_arguments(command),
            "script": None if is_module else str(Path(script).absolute()),
            "module": script if is_module else None,
            "cwd": os.getcwd(),
            "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "policy": options.policy,
            "level": options.level,
            "continues": continues,
            "python": sys.version.split()[0],
            "git": git_state(folder),
            "steadytrain": __version__,
            "pid": os.getpid(),
        },
    }


def _free_folder(runs_dir: Path, name: str, *, named: bool) -> Path:
    """A folder of that name that no other run has, made here; a torchrun worker shares the one of its launcher."""
    if runs_dir.exists() and not runs_dir.is_dir():
        raise UsageError(f"{runs_dir}: not a folder; name another with --runs-dir")
    if "LOCAL_RANK" in os.environ:
        return runs_dir / name
    is_new = not runs_dir.exists()
    for number in itertools.count(1):
        path = runs_dir / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(parents=True)  # only one of two that begin at the same time makes it
        except FileExistsError:
            if named:
                raise UsageError(f"{path}: this run exists already; give another --name") from None
        except OSError:
            break  # nothing can be written here: that is told when there is something to write
        else:
            _made[path] = (path, runs_dir) if is_new else (path,)
            break
    return path


def _give_back(run_dir: Path) -> None:
    """Where nothing was recorded the folder that was made for its name is taken away; one with anything in it stays."""
    made = _made.pop(run_dir, ())
    with contextlib.suppress(OSError):
        for folder in made:
            folder.rmdir()


def _start_stamp() -> str:
    """Time of the start; torchrun's workers take their launcher's, so that they agree on the name."""
    started = time.time()
    if "LOCAL_RANK" in os.environ:
        try:
            started = os.stat(f"/proc/{os.getppid()}").st_ctime
        except OSError:
            started = time.time() // 60 * 60
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(started))
