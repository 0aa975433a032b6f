"""A preflight of a whole script: launches it, follows its first steps, runs checks and reports.

The script runs in a copy of this process, as in ``steadytrain run``, but nothing is recorded. What it writes goes to a
scratch folder. The checks run at the gate of one of its first steps. Then the copy ends right there, without the
script's exit code. With ``--then-run`` the same observer joins a watched run, which continues.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadytrain.core.errors import UsageError
from steadytrain.core.visible_text import visible
from steadytrain.preflight_runs.process_copy import in_a_copy
from steadytrain.storage.documents import as_json
from steadytrain.storage.redaction import redact_text

if TYPE_CHECKING:
    from steadytrain.capture.hooks.launch import Target
    from steadytrain.capture.step.watcher import Watcher
    from steadytrain.preflight_runs.observer import Observed, Observer

OBSERVED_STEPS = {"fast": 4, "full": 8}
"""Number of the script's first steps to observe: enough batches to train on some and test on others."""

OBSERVED_S = {"fast": 8.0, "full": 40.0}
WAIT_S = 900.0
USAGE_STATUS = 2
DOCUMENT_FILE = "preflight.json"
Emit = Callable[[dict[str, Any]], int]
"""Takes the document, shows it and returns the exit status."""


@dataclass(frozen=True)
class Wanted:
    """The request: checks to run by name (none: all), checks to skip, and whether to be thorough."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    thorough: bool = False

    @property
    def mode(self) -> str:
        return "full" if self.thorough else "fast"


def run_script(target: Target, wanted: Wanted, emit: Emit, *, wait_s: float = WAIT_S) -> int:
    """Runs ``target`` to its first steps and checks them. Returns the status that ``emit`` returns for the document.

    Raises:
        UsageError: the script ended without an optimizer step.
    """

    def check(scratch: Path, send: Callable[[dict[str, Any]], None]) -> None:
        from steadytrain.replay.file_sandbox import protect_files

        protect_files(scratch)

        def end(document: dict[str, Any]) -> None:
            send({"document": document})
            _exit(0)

        try:
            _run(target, wanted, end, wait_s)
        except UsageError as error:
            send({"error": str(error)})
        _exit(USAGE_STATUS)

    answer, status = in_a_copy(check)
    if "error" in answer:
        raise UsageError(answer["error"])
    return emit(answer["document"]) if "document" in answer else status


def _run(target: Target, wanted: Wanted, end: Callable[[dict[str, Any]], None], wait_s: float) -> None:
    from steadytrain.capture.hooks.import_hook import after_import
    from steadytrain.capture.hooks.launch import execute

    held: list[tuple[Watcher, Observer]] = []
    ended: list[tuple[str, BaseException | None]] = []

    def attach() -> None:
        held.append(_attach(target.name, wanted, end))

    def finish(how: str, status: int | None, error: BaseException | None) -> int | None:
        ended.append((how, error))
        for _, observer in held:
            observer.finish()  # ends the process if there was a step
        return None

    def too_late() -> None:
        if not any(observer.observed for _, observer in held):
            _say(f"{target.name}: no optimizer step within {wait_s:.0f} s (--wait-s); nothing was checked")
            _exit(USAGE_STATUS)

    alarm = threading.Timer(wait_s, too_late)
    alarm.daemon = True
    alarm.name = "steadytrain-preflight-alarm"
    alarm.start()
    after_import("torch", attach)
    execute(target, finish)
    alarm.cancel()
    sys.stdout.flush()  # the script's output comes before ours
    how, error = ended[0] if ended else ("finished", None)
    for watcher, _ in held:
        watcher.close(ended=how)
    raise UsageError(f"{target.name}: {_why_nothing(how, error, held[0][0] if held else None)}; nothing was checked")


def guest(script: str, wanted: Wanted, take: Callable[[dict[str, Any]], None]) -> Callable[[Watcher], None]:
    """A function that adds a preflight to a watched run. ``take`` gets the document and may raise ``SystemExit``."""

    def join(watcher: Watcher) -> None:
        def put_down(document: dict[str, Any]) -> None:
            folder = watcher.settings.run_dir
            folder.mkdir(parents=True, exist_ok=True)
            (folder / DOCUMENT_FILE).write_text(as_json(document, indent=1, ensure_ascii=False), encoding="utf-8")
            take(document)

        watcher.follow(_observer(lambda: watcher, script, wanted, put_down, replays=False))

    return join


def _attach(script: str, wanted: Wanted, end: Callable[[dict[str, Any]], None]) -> tuple[Watcher, Observer]:
    from steadytrain.capture.settings import Settings
    from steadytrain.capture.step import watcher as watchers
    from steadytrain.core.levels import find_level
    from steadytrain.detection.run_recorder import recording

    unused = Path(tempfile.gettempdir()) / "steadytrain-preflight-unused"
    settings = Settings(
        run_dir=unused, run_name="preflight", policy="observe", level=find_level("light"), rewind_bytes_max=0
    )
    observer = _observer(lambda: watcher, script, wanted, end, replays=True)
    watcher = watchers.launched = watchers.Watcher(settings, tell=_say, record=recording(), observer=observer)
    return watcher, observer


def _observer(
    watcher: Callable[[], Watcher],
    script: str,
    wanted: Wanted,
    take: Callable[[dict[str, Any]], None],
    *,
    replays: bool,
) -> Observer:
    from steadytrain.preflight_runs.observer import Observer

    def done(observed: Observed) -> None:
        try:
            with watcher().aside():
                document = check_observed(observed, watcher(), script, wanted)
        except UsageError as error:
            _say(f"{script}: {error}")
            if replays:
                _exit(USAGE_STATUS)
            return
        except Exception as error:
            if not replays:
                raise  # the watcher reports it, and the run continues
            import traceback

            traceback.print_exc()
            _say(f"{script}: the preflight itself failed ({type(error).__name__}: {error})")
            _exit(USAGE_STATUS)
        take(document)

    mode = wanted.mode
    return Observer(steps=OBSERVED_STEPS[mode], seconds=OBSERVED_S[mode], done=done, replays=replays)


def check_observed(observed: Observed, watcher: Watcher, script: str, wanted: Wanted) -> dict[str, Any]:
    """Runs the checks on the observations.

    Raises:
        UsageError: there is nothing to check, or a check name is unknown.
    """
    from steadytrain.capture.step import ranks
    from steadytrain.preflight_runs import check_catalog
    from steadytrain.preflight_runs.runner import document, run_checks
    from steadytrain.preflight_runs.subject_of_script import subject_of_script

    if ranks.world_size() > 1:
        raise UsageError("several processes train together; run the preflight in one, without the launcher")
    checks = check_catalog.chosen(wanted.only, wanted.skip)
    number = observed.dataset
    dataset = watcher.dataset_key(number) if number is not None else None
    subject, bench = subject_of_script(observed, dataset=dataset, thorough=wanted.thorough)
    for plug_in in check_catalog.broken():
        _say(f"warning: the check plug-in {plug_in.entry_point} is left out: {plug_in.why}")
    results = run_checks(subject, bench, checks, modules=[subject.model, *observed.modules], tell=_progress)
    if results.moved:
        _say(f"warning: not restored: {', '.join(results.moved[:4])}")
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return document(subject, results, script=script)


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Splits names at commas and removes duplicates."""
    parts = (part.strip() for name in names for part in name.split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def _why_nothing(how: str, error: BaseException | None, watcher: Watcher | None) -> str:
    if how == "interrupted":
        return "the script was interrupted before its first optimizer step"
    if error is not None and not (isinstance(error, SystemExit) and how == "finished"):
        return f"the script ended by {type(error).__name__} before its first optimizer step"
    if watcher is None:
        return "the script ended without importing torch"
    seen = f" ({watcher.backward_calls} backward passes were seen)" if watcher.backward_calls else ""
    return f"the script ended without a step of a torch.optim optimizer: it does not train{seen}"


def _progress(name: str, number: int, count: int) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{number}/{count} {name}", end="", file=sys.stderr, flush=True)


def _say(text: str) -> None:
    print(f"steadytrain: {visible(redact_text(text))}", file=sys.stderr, flush=True)


def _exit(status: int) -> None:
    """Ends the process and its loader workers without the script's exit code."""
    for worker in multiprocessing.active_children():
        worker.terminate()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
