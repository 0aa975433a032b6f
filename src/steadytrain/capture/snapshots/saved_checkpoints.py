"""Notes each checkpoint that the script writes, and pins the last healthy ones (``storage/checkpoint_pins.py``).

A save through ``torch.save``, safetensors or ``torch.distributed.checkpoint`` becomes one entry of the fact ``saved``:
step, path, and the tensors whose values are not finite. Which of them were written in a sick phase is decided when the
run is read, because a symptom is often seen after it began. Nothing is changed in what the script saves.

What ``torch.load`` reads before the first update is the fact ``read``. It is kept, too, as long as the script may
overwrite it: a replay begins with the files that the run began with (``replay/files_at_begin.py``).
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.snapshots.saved_contents import NAMES_MAX, Contents, bad_keys, contents_of
from steadytrain.capture.step.observers import StepObserver
from steadytrain.core.own_errors import own, unless_it_fails
from steadytrain.storage.checkpoint_pins import READ_FACT, SAVED_FACT, Identity, Pins, beside, moved_to

if TYPE_CHECKING:
    from steadytrain.capture.step.live_run import LiveRun
    from steadytrain.capture.step.optimizer_streams import Stream

READ_MAX = 16
ENTRIES_MAX = 500
"""Saves kept in the fact, the newest."""

WAITING_MAX = 64
MODULES = ("safetensors.torch", "torch.distributed.checkpoint")


class SaveEvents(Protocol):
    def save_begins(self, saved: Any, target: Any) -> Any: ...
    def save_ends(self, save: Any) -> None: ...
    def file_read(self, source: Any) -> None: ...


def save_wrappers(events: SaveEvents, module: str) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """The replacements of the functions of ``module`` that write checkpoints: owner, name, wrapper."""
    if module == "torch":
        yield torch, "save", _wrapper(events, torch.save, _second)
        yield torch, "load", _reader(events, torch.load)
    elif module == "safetensors.torch":
        import safetensors.torch as its_module  # right after its code has run, its package does not have it yet

        yield its_module, "save_file", _wrapper(events, its_module.save_file, _second)
    else:
        import torch.distributed.checkpoint as distributed

        yield distributed, "save", _wrapper(events, getattr(distributed, "save"), _folder)  # noqa: B009


def _reader(events: SaveEvents, load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def loads(*args: Any, **kwargs: Any) -> Any:
        result = load(*args, **kwargs)
        events.file_read(args[0] if args else kwargs.get("f"))
        return result

    return loads


def _wrapper(events: SaveEvents, save: Callable[..., Any], target_of: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(save)
    def saves(*args: Any, **kwargs: Any) -> Any:
        begun = events.save_begins(args[0] if args else kwargs, target_of(args, kwargs))
        try:
            result = save(*args, **kwargs)
        except BaseException:
            events.save_ends(None)
            raise
        events.save_ends(begun)
        return result

    return saves


def _second(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return args[1] if len(args) > 1 else kwargs.get("f", kwargs.get("filename"))


def _folder(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return kwargs.get("checkpoint_id") or getattr(kwargs.get("storage_writer"), "path", None)


@dataclass
class _Save:
    step: int
    contents: Contents
    path: str | None
    in_place: bool
    mode: int | None = None
    files: dict[Path, Identity] = field(default_factory=dict)


class SavedCheckpoints(StepObserver):
    """Saves of the watched process, from any of its threads.

    Args:
        run: the live run.
        bytes_max: disk space for pins; 0: none.
        saving: is called when a save of tensors begins.
    """

    def __init__(self, run: LiveRun, bytes_max: int, saving: Callable[[], None] = lambda: None) -> None:
        self._run = run
        self._saving = saving
        self._bytes_max = bytes_max
        self._pins: Pins | None = None
        self._lock = threading.Lock()
        self._inside = threading.local()
        self._waiting: list[_Save] = []
        self._entries: list[dict[str, Any]] = []
        self._read: dict[str, Identity] = {}
        self._held: dict[str, str] = {}

    # -- the script's call -----------------------------------------------------------------------------------------

    def begins(self, saved: Any, target: Any) -> _Save | None:
        """The script is about to save; only the outermost of nested saves counts."""
        depth = getattr(self._inside, "depth", 0)
        self._inside.depth = depth + 1
        if depth or len(self._waiting) >= WAITING_MAX:
            return None
        path = _path_of(target)
        with torch.no_grad(), self._run.own_time if self._run.is_script() else nullcontext():
            contents = contents_of(saved)
        if not contents.shapes:
            return None
        with self._run.guard.part("looking at what is saved"):
            self._saving()
        save = _Save(self._step(), contents, path, in_place=not isinstance(target, str | os.PathLike))
        if self._pins is not None and path is not None and not save.in_place:
            with self._lock:
                save.mode = self._pins.is_about_to_be_written(Path(path))
        return save

    def ends(self, save: _Save | None) -> None:
        """The script has saved; None: what begun was nothing for us, or it failed."""
        self._inside.depth = max(0, getattr(self._inside, "depth", 1) - 1)
        if save is None or self._run.is_over():
            return
        if save.path is not None:
            if save.mode is not None and not os.path.islink(save.path):
                os.chmod(save.path, save.mode)
            for file in _files_of(Path(save.path)):
                known = Identity.of(file)
                if known is not None:
                    save.files[file] = known
        with self._lock:
            self._waiting.append(save)

    def file_read(self, source: Any) -> None:
        """The script has read a checkpoint; what it reads later does not decide where it begins."""
        if self._run.is_over() or not self._run.recorder.recording or self._step() or len(self._read) >= READ_MAX:
            return
        path = _path_of(source)
        known = Identity.of(path) if path is not None else None
        if path is not None and known is not None:
            with self._lock:
                self._read.setdefault(path, known)

    def _step(self) -> int:
        streams = self._run.streams
        return streams[0].step if streams else 0

    # -- between two steps -----------------------------------------------------------------------------------------

    def step_ended(self, stream: Stream, folder: Path | None) -> None:
        if self._read and not self._held and stream.step == 1:
            with self._run.guard.part("noting a checkpoint"):
                self._keep_read()
        if self._waiting:
            with self._run.guard.part("noting a checkpoint"):
                self.settle()

    def close(self, *, finished: bool, noted: bool) -> None:
        if self._waiting:
            with self._run.guard.part("noting a checkpoint"):
                self.settle()
        if self._pins is not None and self._held:
            with self._run.guard.part("noting a checkpoint"):
                self._pins.drop_unchanged(self._held, self._read)
                self._tell_read()

    def _keep_read(self) -> None:
        """Pin what the script read before its first update, as far as it is still what was read."""
        size = 0
        for path, known in self._read.items():
            size += known.size
            if size <= self._bytes_max and Identity.of(path) == known:
                with unless_it_fails(OSError):
                    self._held[path] = self._our_pins().add_read(Path(path))
        self._tell_read()

    def _tell_read(self) -> None:
        read = {path: {"file": known.fact(), "held": self._held.get(path)} for path, known in self._read.items()}
        self._run.recorder.set_fact(READ_FACT, read)

    def _our_pins(self) -> Pins:
        if self._pins is None:
            self._pins = Pins(self._run.recorder.begin().path, self._bytes_max)
        return self._pins

    def settle(self) -> None:
        """Note the saves since the last step. By now an open file is closed, and a temporary one has its name."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        found = [(save, bad) for save in waiting if (bad := self._bad(save.contents)) is not None]
        for group in sorted(_together(found), key=_size_bytes, reverse=True):
            self._note(group)

    def _bad(self, contents: Contents) -> list[str] | None:
        for stream in self._run.streams:
            if stream.model is None:
                continue
            roots = list(stream.roots())
            parameters = {name: tuple(one.shape) for root in roots for name, one in root.named_parameters()}
            buffers = {name: tuple(one.shape) for root in roots for name, one in root.named_buffers()}
            if parameters and (bad := bad_keys(contents, parameters, buffers)) is not None:
                return bad
        return None

    def _note(self, group: list[tuple[_Save, list[str]]]) -> None:
        first = group[0][0]
        step, path = first.step, first.path
        bad = [key for _, keys in group for key in keys]
        files = self._where([save for save, _ in group])
        entry: dict[str, Any] = {
            "step": step,
            "path": str(Path(path).parent) if path is not None and len(group) > 1 else path,
            "files": {str(path): known.fact() for path, known in files.items()},
            "bad": bad[:NAMES_MAX],
            "bad_count": len(bad),
            "held": None,
        }
        sick = self._run.recorder.sick_at(step)
        has_one = self._pins is not None and any(pin.step == step for pin in self._pins.held)  # of the same step
        if files and not bad and sick is None and self._bytes_max and not has_one:
            in_place = any(save.in_place for save, _ in group)
            try:
                entry["held"] = self._pin(step, dict.fromkeys(beside(list(files)), in_place))
            except own(OSError) as error:
                entry["not_held"] = f"{type(error).__name__}: {error}"
        self._entries = [*self._entries, entry][-ENTRIES_MAX:]
        self._run.recorder.set_fact(SAVED_FACT, self._entries)

    def _where(self, saves: list[_Save]) -> dict[Path, Identity]:
        """The files of saves by the name that they have now; an open one has its content only now."""
        files: dict[Path, Identity] = {}
        for save in saves:
            for path, known in save.files.items():
                now = Identity.of(path) if save.in_place else None
                name = str(path) if now is not None else moved_to(str(path), known)
                if name is not None:
                    files[Path(name)] = now or known
        return files

    def _pin(self, step: int, files: dict[Path, bool]) -> dict[str, Any] | None:
        pins = self._our_pins()
        with self._lock:
            pin = pins.add(step, files)
        if pin is None:
            return None
        return {"folder": str(pin.folder), "files": {path: known.fact() for path, known in pin.files.items()}}


def _together(found: list[tuple[_Save, list[str]]]) -> list[list[tuple[_Save, list[str]]]]:
    """The saves that make one checkpoint: a model's file, and that of its optimizer beside it, of the same step."""
    groups: list[list[tuple[_Save, list[str]]]] = []
    for one in found:
        save = one[0]
        group = next((group for group in groups if _completes(save, [other for other, _ in group])), None)
        if group is None:
            groups.append([one])
        else:
            group.append(one)
    return groups


def _size_bytes(group: list[tuple[_Save, list[str]]]) -> int:
    return sum(known.size for save, _ in group for known in save.files.values())


def _completes(save: _Save, group: list[_Save]) -> bool:
    first = group[0]
    if save.path is None or first.path is None or save.step != first.step:
        return False
    is_beside = Path(save.path).parent == Path(first.path).parent
    return is_beside and all(save.contents.is_optimizer != other.contents.is_optimizer for other in group)


def _path_of(target: Any) -> str | None:
    if isinstance(target, str | os.PathLike):
        return os.path.abspath(os.fspath(target))
    name = getattr(target, "name", None)
    return os.path.abspath(name) if isinstance(name, str) and os.path.exists(name) else None


def _files_of(path: Path) -> list[Path]:
    return sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]


def put_savers(events: SaveEvents, guard: Guard, replace: Callable[..., None], after: Callable[..., None]) -> None:
    """Replace the functions that write checkpoints; those of other packages once these are imported."""
    for owner, name, wrapper in save_wrappers(events, "torch"):
        replace(owner, name, wrapper)

    def put(module: str) -> None:
        for owner, name, wrapper in save_wrappers(events, module):
            replace(owner, name, wrapper)

    for module in MODULES:
        after(module, guard.wrap(functools.partial(put, module), what="noting a checkpoint"))
